"""`tracekit theory`: inputs by option or file, text and JSON, mistakes by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tracekit.commands import cli
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = [
    "--model", "llama3-70b", "--layout", "tp=8,pp=4,dp=2", "--hardware", "dgx-h100", "--sequence", "8192",
    "--micro-batch", "1", "--micro-batches", "16", "--sequence-parallel", "--data-parallel", "zero1",
]  # fmt: skip
RUN = """
[layout]
tp = 8
pp = 4
dp = 2
[model]
name = "llama3-70b"
[training]
sequence = 8192
micro_batch = 1
micro_batches = 16
sequence_parallel = true
data_parallel = "zero1"
[hardware]
name = "NVIDIA H100 80GB HBM3"
network = "ndr"
[[group]]
name = "7"
"""


def run(*args: str) -> str:
    result = CliRunner().invoke(cli, ["theory", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def document(*args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*args, "--json"))
    return found


def test_text() -> None:
    text = run(*LLAMA)
    assert "449.223 GFLOP a token" in text
    assert "1F1B: 15.79 % of the step, 18.75 % of the ideal time" in text
    assert "schedule=1F1B*" in text  # a default is marked
    assert "hidden=8192°" in text
    assert "needs the bucket size" in text


def test_json_holds_numbers_and_reasons() -> None:
    found = document(*LLAMA)
    gather = found["collectives"][0]
    assert (gather["op"], gather["payload_bytes"], gather["calls_per_step"]) == ("all_gather", 134217728, [640] * 4)
    assert gather["lower_bound_ns"] == pytest.approx(134217728 * 7 / 8 / 450)
    assert found["bubble"]["over_step_ratio"] == pytest.approx(3 / 19)
    nulls = [r for r in found["collectives"] if r["payload_bytes"] is None]
    assert nulls
    assert all("payload_bytes" in r["reasons"] for r in nulls)
    sources = {i["field"]: i["source"] for i in found["inputs"]}
    assert (sources["model.hidden"], sources["training.dtype"], sources["layout.tp"]) == (
        "catalogue",
        "default",
        "given",
    )


def test_run_file_gives_the_same_as_options(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN)
    a, b = document("--run", str(file)), document(*LLAMA)
    assert a["collectives"] == b["collectives"]
    assert a["mfu_upper_ratio"] == b["mfu_upper_ratio"]


def test_options_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN)
    assert document("--run", str(file), "--micro-batches", "3")["bubble"]["over_ideal_ratio"] == pytest.approx(1.0)
    assert (
        document("--run", str(file), "--nic-gbps", "25")["collectives"] != document("--run", str(file))["collectives"]
    )


def test_sizes_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "[model]\nhidden = 8\nlayers = 2\nheads = 4\nkv_heads = 2\nffn = 16\nvocab = 10\n[training]\nsequence = 5\n"
    )
    assert document("--run", str(file))["flops"]["token_flops"] == 3 * (2 * (2 * 576 + 80) + 160)


def test_every_model_on_every_machine() -> None:
    names = json.loads(run("--list", "--json"))
    for model in names["models"]:
        for hardware in ("h800", "mi300x", "dgx-a100"):
            found = document(
                "--model", model, "--layout", "tp=2,dp=4", "--hardware", hardware, "--sequence", "4096", "--micro-batch",
                "1", "--micro-batches", "4",
            )  # fmt: skip
            assert found["flops"]["token_flops"] > 0
    assert "deepseek-v3" in run("--list")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "say what to compute"),
        (["--model", "llama9"], "no model 'llama9'"),
        (["--hardware", "h99"], "no hardware 'h99'"),
        (["--layout", "tp"], "AXIS=SIZE"),
        (["--layout", "tp=0"], "above zero"),
        (["--layout", "tp=2,tp=4"], "twice"),
        (["--layout", "xp=2"], "no field 'xp'"),
        (["--layout", "tp=2,order=tp-tp"], "once each"),
        (["--layout", "dp=4,ep=3"], "ep"),
        (["--layout", "tp=2,dp=4,world=4"], "make 8"),
        (["--layout", "tp=2,dp=4,external_dp=2"], "external_dp"),
        (["--layout", "dp=4,ep=2,edp=4"], "make 2"),
        (["--layout", "dp=4,shard=3"], "shard"),
        (["--model", "llama3-8b", "--recompute", "some"], "recompute"),
        (["--model", "llama3-8b", "--dtype", "int4"], "int4"),
        (["--model", "llama3-8b", "--micro-batch", "-1"], "negative"),
        (["--model", "llama3-8b", "--micro-batch", "0"], "above zero"),
        (["--model", "llama3-8b", "--hardware", "h100", "--nic-gbps", "nan"], "finite"),
        (["--model", "llama3-8b", "--hardware", "h100", "--network", "token-ring"], "token-ring"),
        (["--run", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_mistakes_are_named(args: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["theory", *args])
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model", "not a TOML file"),
        ("model = 3", "must be a table"),
        ("[model]\nhiden = 3", "no field 'hiden'"),
        ("[model]\nhidden = true", "expected int"),
        ("[model]\nhidden = 0", "expected a size"),
        ("[model]\nexperts = 3", "must be a table"),
        ("[model]\nexperts = { count = 8 }", "lacks a field"),
        ("[training]\nsequence = 'long'", "expected int"),
        ("[training]\nsequence_parallel = 1", "expected bool"),
        ("[hardware]\npeak_tflops = { bf16 = -1 }", "peak_tflops"),
        ("[hardware]\nlink_gbps = 0", "above zero"),
        ("[layout]\ntp = -1", "negative"),
        ("[layout]\norder = 'tp-zp'", "order"),
    ],
)
def test_mistakes_of_a_file_are_named(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    result = CliRunner().invoke(cli, ["theory", "--run", str(file)])
    assert isinstance(result.exception, UsageError), result.output
    assert words in str(result.exception)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tp=2,pp=2,dp=4,ep=4", {"etp": 2, "dp": 4}),
        ("tp=2,pp=2,dp=4,ep=4,etp=1,edp=2,world=16", {"etp": 1}),
        ("cp=2,dp_shard=4,dp_replicate=2,order=cp-dp_shard-dp_replicate", {"dp": 8, "shard": 8}),
        ("tp=2,dp=2,pp=2,order=tp-ep-pp-dp", {"order": ["tp", "pp", "dp", "cp"]}),
    ],
)
def test_layouts_mean_what_a_declared_layout_means(text: str, wanted: dict[str, Any]) -> None:
    inputs = {i["field"]: i["value"] for i in document("--layout", text)["inputs"]}
    assert {k: inputs[f"layout.{k}"] for k in wanted} == wanted


def test_the_declared_layout_agrees() -> None:
    """The same text, read by the layout of a job and by theory, makes the same groups."""
    from tracekit.label.layout.declared import parse_layout
    from tracekit.theory.config import layout_of

    for text in ("tp=2,cp=2,dp=2,pp=2", "tp=2,dp=4,pp=2,ep=4", "tp=2,dp=4,pp=2,ep=4,etp=1", "dp=4,tp=2,order=dp-tp"):
        declared, ours = parse_layout(text), layout_of(text)
        assert declared.world_size == ours.world_size
        for name, size in (*declared.degrees, *declared.expert):
            assert getattr(ours, name) == size
        assert [a for a, n in declared.degrees if n > 1] == [a for a in ours.order if getattr(ours, a) > 1]
