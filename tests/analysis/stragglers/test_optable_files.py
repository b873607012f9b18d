"""Operation tables as files: read, recognised, refused, written, analysed by the command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from job_builder import Job, even, noisy, slow, table, to_rows

import tracekit as tk
from tracekit.analysis.stragglers import analyze_ops, rows_of
from tracekit.analysis.stragglers.optable import Spans
from tracekit.commands import cli
from tracekit.errors import BrokenInput, ForeignFormat, LimitExceeded, TracekitError, UnusableInput
from tracekit.model import NO_TIME
from tracekit.output.optable import write_op_table
from tracekit.parsers import identify, straggler_table
from tracekit.parsers import parse as parse_trace
from tracekit.parsers.straggler_table import parse

if TYPE_CHECKING:
    from tracekit.model import OpRows

SAMPLE = Path(__file__).resolve().parents[3] / "sample_traces" / "gloo-fsdp2"
KINDS = ("compute", "pp-comm", "dp-comm")


@pytest.fixture
def ops() -> OpRows:
    """One worker of a job computes at half the speed."""
    return table(Job(stages=2, dp=2, steps=3, takes=slow(1, 0, 2.0)))


@pytest.fixture
def file(ops: OpRows, tmp_path: Path) -> Path:
    return write_op_table(ops, tmp_path / "ops.parquet")


def kind(op: str) -> int:
    return 0 if op.endswith("-compute") else 1 if op.endswith(("-send", "-recv")) else 2


def timeline(ops: OpRows) -> list[dict[str, Any]]:
    """The table as the timeline that is drawn of it."""
    rows = to_rows(ops)
    workers = sorted({(r[2], r[0], r[1]) for r in rows})
    events: list[dict[str, Any]] = [
        {
            "name": r[4], "cat": r[4], "ph": "X", "pid": r[0], "tid": r[2] * 3 + kind(r[4]), "ts": r[5] / 1e3,
            "dur": r[6] / 1e3, "args": {"step": r[3], "model_chunk": r[8], "mb_id": r[9], "seq_id": r[7]},
        }
        for r in rows
    ]  # fmt: skip
    for rank, dp, stage in workers:
        for k, name in enumerate(KINDS):
            text = f"PP rank {stage}, TP rank 0, {name}"
            events.append({"name": "thread_name", "ph": "M", "pid": dp, "tid": rank * 3 + k, "args": {"name": text}})
    return events + [
        {"name": "process_name", "ph": "M", "pid": d, "args": {"name": f"DP rank [{d}]"}} for d in range(2)
    ]


def same(a: OpRows, b: OpRows) -> bool:
    return sorted(to_rows(a)) == sorted(to_rows(b))


def test_what_is_written_is_read_back_exactly(ops: OpRows, file: Path) -> None:
    assert same(parse(file), ops)
    assert identify(file).name == "op-table"


def test_noise_of_the_ns_survives(tmp_path: Path) -> None:
    ops = table(Job(takes=noisy(3)))
    assert same(parse(write_op_table(ops, tmp_path / "x")), ops)


@pytest.mark.parametrize("form", ["list", "object", "gzip"])
def test_the_timeline_says_the_same_as_the_table(ops: OpRows, tmp_path: Path, form: str) -> None:
    path = tmp_path / "timeline"
    data = json.dumps({"traceEvents": timeline(ops)} if form == "object" else timeline(ops)).encode()
    path.write_bytes(gzip.compress(data) if form == "gzip" else data)
    assert identify(path).name == "op-table"
    read = [r[:10] for r in sorted(to_rows(parse(path)))]  # it has no number of the chunk in the whole model
    assert read == [r[:10] for r in sorted(to_rows(ops))]
    assert analyze_ops(parse(path)).rows[0] | {"source": ""} == analyze_ops(ops).rows[0] | {"source": ""}


def test_a_table_is_no_trace(file: Path) -> None:
    with pytest.raises(ForeignFormat, match="tracekit analyze"):
        parse_trace(file)


def test_other_parquet_is_told_apart(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    assert identify(tmp_path / "a.parquet").name == "parquet"
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + bytes(50))
    assert identify(tmp_path / "b.parquet").name == "parquet"


def spoiled(file: Path, column: str, values: dict[int, Any], type_: pa.DataType | None = None) -> Path:
    data = pq.read_table(file)
    old = data.column(column).to_pylist()
    for row, value in values.items():
        old[row] = value
    at = data.schema.get_field_index(column)
    pq.write_table(data.set_column(at, column, pa.array(old, type_ or data.schema.field(column).type)), file)
    return file


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("duration", -1.0, "ends before it starts"),
        ("duration", float("nan"), "possible time"),
        ("start_ts", float("inf"), "possible time"),
        ("start_ts", None, "possible time"),
        ("dp_rank", -1, "possible dp_rank"),
        ("stage", 2_000_000, "possible stage"),
        ("seq_id", None, "possible seq_id"),
        ("step", None, "without a step"),
        ("optype", None, "without a type"),
    ],
)
def test_rows_that_cannot_be_are_counted_or_refused(file: Path, column: str, value: Any, reason: str) -> None:
    spoiled(file, column, {5: value})
    ops = parse(file)
    assert [(h.severity, h.count, h.example) for h in ops.health] == [("lost", 1, "row 5")]
    assert reason in ops.health[0].reason
    with pytest.raises(BrokenInput, match="row 5"):
        parse(file, strict=True)
    job = analyze_ops(ops).rows[0]
    assert job["reason"] is not None or job["steps"] == 2  # the step that lacks an operation is not replayed


def test_damaged_files_are_refused(file: Path, tmp_path: Path, ops: OpRows, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(timeline(ops)).encode()
    for number, data in enumerate((file.read_bytes()[:-40], text[:-5], gzip.compress(text)[:-100])):
        path = tmp_path / str(number)
        path.write_bytes(data)
        with pytest.raises(BrokenInput, match=str(path)):
            parse(path)
    unnamed = tmp_path / "unnamed"
    unnamed.write_text(json.dumps([e for e in timeline(ops) if e["ph"] == "X"]))
    with pytest.raises(UnusableInput, match="no stage"):
        parse(unnamed)
    words = write_op_table(ops, tmp_path / "words")
    spoiled(words, "stage", dict.fromkeys(range(len(ops)), "x"), pa.string())
    with pytest.raises(BrokenInput, match="column stage holds string"):
        parse(words)
    lost = spoiled(write_op_table(ops, tmp_path / "lost"), "step", dict.fromkeys(range(len(ops))))
    with pytest.raises(UnusableInput, match="no row"):
        parse(lost)
    monkeypatch.setattr(straggler_table, "MAX_ROWS", 10)
    with pytest.raises(LimitExceeded):
        parse(file)


def test_numbers_of_a_hostile_size_do_not_take_memory(tmp_path: Path) -> None:
    rows = table(Job(takes=even))
    rows.stage[0], rows.dp_rank[1], rows.seq[2] = 60_000, 900_000, 16_000_000
    result = analyze_ops(parse(write_op_table(rows, tmp_path / "x")))
    assert result.rows[0]["reason"] == "incomplete-grid"


def test_an_unwritable_place_is_an_error_of_ours(ops: OpRows, tmp_path: Path) -> None:
    with pytest.raises(TracekitError, match="cannot be written"):
        write_op_table(ops, tmp_path / "missing" / "ops.parquet")


def test_spans_of_traces_become_a_table() -> None:
    ops = table(Job(stages=2, chunks=2, takes=noisy(5)))
    by = np.random.default_rng(1).permutation(len(ops))
    rank, stage, dp, step, start, dur, chunk, micro_batch = (
        np.where((column := getattr(ops, name)[by].astype(np.int64)) == -1, NO_TIME, column)
        for name in ("rank", "stage", "dp_rank", "step", "start", "dur", "chunk", "micro_batch")
    )
    names = [*reversed(ops.ops), "unused"]
    op = np.array([names.index(ops.ops[i]) for i in ops.op[by].tolist()], np.int64)
    spans = Spans(names, op, rank, stage, dp, step, start, dur, chunk, np.full(len(by), NO_TIME), micro_batch)
    assert same(rows_of(spans, ops.path), ops)


# ------------------------------------------------------------------ the command


def call(*args: object) -> str:
    result = CliRunner().invoke(cli, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_report_names_slowdown_worker_and_operation(file: Path) -> None:
    text = call("analyze", file, "--steps")
    assert "ops.parquet: 4 workers, 3 steps (operation table)" in text
    assert "of the time is lost to stragglers: slowdown 1." in text
    assert "few slow workers (rank 2): fixing them recovers" in " ".join(text.split())
    first = text.split("workers by slowdown")[1].splitlines()[2].split()
    assert first[:3] == ["2", "1", "0"]
    assert "0 ranks" not in text
    assert "slowdown of a job" in text


def test_json_and_dataset_hold_the_table(file: Path, tmp_path: Path) -> None:
    document = json.loads(call("analyze", file, "--json"))
    assert document["sources"] == [str(file)]
    assert [r["scope"] for r in document["stragglers"][:3]] == ["job", "top_workers", "last_stage"]
    call("analyze", file, "-q", "-o", tmp_path / "out")
    read = pq.read_table(tmp_path / "out" / "stragglers" / "part-0.parquet")
    assert read.to_pylist() == document["stragglers"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["sources"] == [str(file)]


def test_a_table_beside_traces_adds_a_section(file: Path) -> None:
    alone = json.loads(call("analyze", SAMPLE, "--json", "--workers", 1))
    both = json.loads(call("analyze", SAMPLE, file, "--json", "--workers", 1))
    assert both["stragglers"]
    assert alone["stragglers"] == []
    assert {k: v for k, v in both.items() if k not in ("sources", "files", "stragglers", "findings")} == {
        k: v for k, v in alone.items() if k not in ("sources", "files", "stragglers", "findings")
    }
    text = call("analyze", SAMPLE, file, "--workers", 1)
    assert "is communication that nothing hid" in text
    assert "lost to stragglers" in text


def test_several_tables_keep_their_names(file: Path, tmp_path: Path) -> None:
    write_op_table(table(Job(takes=even)), tmp_path / "calm.parquet")
    text = call("analyze", tmp_path, "--format", "markdown")
    assert "calm.parquet: slowdown by stragglers 1.000, below 1.1: not a straggling job" in text
    assert "ops.parquet: by operation" in text.replace("\\", "")
    frame = tk.analyze(tmp_path).stragglers
    assert set(frame[frame.scope == "job"].source.map(lambda s: Path(s).name)) == {"ops.parquet", "calm.parquet"}


def test_a_broken_table_alone_is_exit_3_and_beside_others_a_finding(file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text('[{"cat":"forward-compute","args":{"model_chunk":0')
    result = CliRunner().invoke(cli, ["analyze", str(broken)])
    assert isinstance(result.exception, UnusableInput)
    document = json.loads(call("analyze", broken, file, "--json"))
    assert any(f["code"] == "unusable-file" for f in document["findings"])


def test_a_table_that_cannot_be_replayed_says_why(tmp_path: Path) -> None:
    rows = table(Job(takes=even))
    rows.stage[rows.dp_rank == 1] = 0
    write_op_table(rows, tmp_path / "half.parquet")
    text = call("analyze", tmp_path / "half.parquet")
    assert "no slowdown is given" in text
    assert "3 of 2 × 2 workers" in text
