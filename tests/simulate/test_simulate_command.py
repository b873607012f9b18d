"""`tracekit simulate`: files, truth, run file, mistakes by name."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tracekit.commands import cli
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--layers", "2", "--micro-batches", "2", "--steps", "1"]


def run(*args: object) -> str:
    result = CliRunner().invoke(cli, ["simulate", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_one_file_a_rank_and_the_truth_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert "2 ranks, 1 steps, 1F1B" in run("--layout", "pp=2", *SMALL, "-o", tmp_path / name)
    names = ["rank0.json.gz", "rank1.json.gz", "truth.json"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == names
    assert all((tmp_path / "a" / n).read_bytes() == (tmp_path / "b" / n).read_bytes() for n in names)
    with gzip.open(tmp_path / "a" / "rank1.json.gz") as file:
        trace = json.load(file)
    assert trace["distributedInfo"]["rank"] == 1
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel" and "SendRecv" in e["name"]]
    assert {e["args"]["Collective name"] for e in kernels} == {"send", "recv"}
    assert {"Process Group Description", "Process Group Ranks", "Seq", "Comms Id"} < set(kernels[0]["args"])
    truth = json.loads((tmp_path / "a" / "truth.json").read_text("utf-8"))
    assert truth["degrees"] == {"pp": 2}
    split = truth["ranks"]["1"]["steps"]["0"]["pipeline"]
    assert set(split) == {"window_ns", "warmup_ns", "steady_ns", "drain_ns"}


@pytest.mark.parametrize("part", [("--gpus-per-node", 1), ("--nic-gbps", 25), ("--network", "hdr")])
def test_a_part_of_the_default_hardware_leaves_the_rest(tmp_path: Path, part: tuple[object, ...]) -> None:
    assert "2 ranks" in run("--layout", "tp=2", *SMALL, *part, "-o", tmp_path / "out")


def test_a_run_file_and_options_over_it(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[layout]\ntp = 2\n[simulate]\nsteps = 2\nfirst_step = 5\nslow = { 1 = 1.5 }\n", "utf-8")
    run("--run", file, "--layers", 1, "--micro-batches", 1, "--steps", 1, "--slow", "0=2", "-o", tmp_path / "out")
    truth = json.loads((tmp_path / "out" / "truth.json").read_text("utf-8"))
    assert (truth["steps"], truth["slow_ranks"]) == ([5], {"0": 2.0})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--model", "llama3-8b"], "--layout tp=2"),
        (["--layout", "pp=2", "--slow", "1"], "NUMBER=VALUE"),
        (["--layout", "pp=2", "--slow", "7=1.5", *SMALL], "ranks 0 to 1"),
        (["--layout", "dp=2", "--data-parallel", "zero2"], "ZeRO-2 is not simulated"),
        (["--layout", "cp=2", "--framework", "torch", "--context-method", "ring"], "torch's context parallelism"),
        (["--layout", "pp=3", "--layers", "4"], "layers by stages"),
        (["--layout", "pp=2", "--schedule", "DualPipe", "--micro-batches", "3"], "DualPipe needs"),
        (["--layout", "tp=8,pp=8,dp=64", "--micro-batches", "64"], "fewer steps or layers"),
        (["--layout", "dp=2,ep=2"], "the model has no experts"),
        (["--layout", "dp=2", "--hardware", "v100", *SMALL], "hardware.peak_tflops.bf16: give --hardware$"),
        (["--layout", "cp=2,tp=2", *SMALL], "training.context_method: give --context-method$"),
        (["--layout", "dp=16", "--hardware", "h100", *SMALL], "hardware.nic_gbps: give --nic-gbps$"),
    ],
)
def test_mistakes_are_told(args: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(cli, ["simulate", *args, "-o", str(tmp_path / "out")], catch_exceptions=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [("speed = 3", "no field 'speed'"), ("steps = true", "wrong type"), ("jitter_ratio = 1.0", "jitter_ratio"),
     ("slow = { x = 2 }", "expected a number and a factor")],
)  # fmt: skip
def test_mistakes_of_the_run_file_are_told(table: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(f"[layout]\ntp = 2\n[simulate]\n{table}\n", "utf-8")
    args = ["simulate", "--run", str(tmp_path / "run.toml"), "-o", str(tmp_path / "out")]
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(cli, args, catch_exceptions=False)


def test_a_full_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("", "utf-8")
    with pytest.raises(UsageError, match="is not empty"):
        CliRunner().invoke(cli, ["simulate", "--layout", "tp=2", "-o", str(tmp_path)], catch_exceptions=False)
