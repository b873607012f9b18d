"""One folder with everything in it: each file is known by its content, used for what it can tell, and named."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

from click.testing import CliRunner
from job_writer import Job, write

import tracekit as tk
from tracekit.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job()


def execution_trace(rank: int) -> bytes:
    """The smallest execution trace: one operator."""
    node = {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "inputs": {"values": []},
            "outputs": {"values": []}, "attrs": []}  # fmt: skip
    return gzip.compress(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 4000 + rank, "nodes": [node]}).encode())


def mixed(folder: Path) -> Path:
    """Names say nothing or mislead."""
    for r in JOB.ranks:
        JOB.kineto(folder, r, range(2, 5), name="part{}.txt")
        write(folder / f"{r}.json", JOB.log(r))
        write(folder / f"inspector{r}.trace", JOB.inspector(r))
        JOB.recorder(r).write(folder).rename(folder / f"x{r}")
    (folder / "et.json.gz").write_bytes(execution_trace(0))
    (folder / "README").write_text("what this job was\nand when\n")
    (folder / "empty.json").write_bytes(b"")
    return folder


def test_what_every_file_was_taken_for(tmp_path: Path) -> None:
    result = tk.analyze(mixed(tmp_path), workers=1)
    files = {f["path"].rsplit("/", 1)[1]: f for f in result.arrow("files").to_pylist()}
    assert len(files) == 4 * 4 + 3
    for r in JOB.ranks:
        for name, form, use in ((f"part{r}.txt", "kineto", "analysed"), (f"{r}.json", "nccl-log", "joined"),
                                (f"inspector{r}.trace", "nccl-inspector", "joined"),
                                (f"x{r}", "flight-recorder", "joined")):  # fmt: skip
            assert (files[name]["format"], files[name]["use"], files[name]["ranks"]) == (form, use, str(r))
    assert files["et.json.gz"]["format"] == "execution-trace"
    assert files["et.json.gz"]["use"] in ("not joined", "could not be used", "passed over")
    assert (files["README"]["use"], files["empty.json"]["use"]) == ("passed over", "passed over")
    assert "record" in files["README"]["reason"]
    assert result.document["files"] == result.arrow("files").to_pylist()


def test_the_report_says_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["analyze", str(mixed(tmp_path)), "--workers", "1"])
    assert done.exit_code == 0
    text = " ".join(done.output.split())
    assert "4 × NCCL_DEBUG log: joined" in text
    assert "1 × plain text: passed over" in text
    assert "4 × Kineto Chrome trace (torch.profiler): analysed" in text
