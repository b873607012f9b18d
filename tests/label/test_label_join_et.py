"""Execution traces beside the profiler's: calls tied by the number of their record, and what that adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from et_writer import groups, node, record
from et_writer import trace as et_trace
from kineto_writer import op, write
from msgspec.structs import replace

import tracekit as tk
from tracekit.label import load_rules
from tracekit.label.join import join
from tracekit.label.witness import no_activities
from tracekit.model import Call, LabelledRank, TraceMeta, Witness, WitnessCall, WitnessGroup

if TYPE_CHECKING:
    from pathlib import Path

RULES = load_rules()


def rank_of(*calls: Call) -> LabelledRank:
    return LabelledRank(TraceMeta("t.json", rank=0), 0, no_activities(), list(calls), [], {}, [], (0, 10))


def account(*calls: WitnessCall) -> Witness:
    return Witness(TraceMeta("et.json"), "execution-trace", [WitnessGroup("7", "7", "tp", 2, (0, 1))], list(calls))


def seen(number: int, name: str = "allreduce", **more: object) -> WitnessCall:
    return replace(
        WitnessCall(name, "7", seq=number, rf_id=number, in_sizes=[[6]], out_sizes=[[6]], dtype="float"), **more
    )  # type: ignore[arg-type]


def test_equal_numbers_tie_calls_and_fill_what_is_missing() -> None:
    rank = rank_of(Call("all_reduce", "c10d::allreduce_", rf_id=5), Call("all_reduce", "c10d::allreduce_", rf_id=9))
    join(rank, account(seen(9, in_sizes=[[3], [4]], out_sizes=[[3], [4]]), seen(5)), RULES)
    first, second = rank.calls
    assert (first.witness, first.group_name, first.group_desc, first.members, first.seq) == (
        "execution-trace:rf_id", "7", "tp", (0, 1), 5,
    )  # fmt: skip
    assert (first.in_nelems, first.out_nelems, first.dtype, first.payload_bytes) == (6, 6, "Float", 24)
    assert (second.in_nelems, second.payload_bytes, second.seq) == (7, 28, 9)
    assert dict(first.sources) == {"group": "execution-trace", "seq": "execution-trace", "size": "execution-trace"}
    assert [h.reason for h in rank.health] == ["calls tied to the execution-trace by the number of the record"]


def test_split_lists_that_the_trace_cut_become_whole() -> None:
    whole = str(list(range(1, 65)))
    cut = "[1, 2, 3, ..., 64]"
    rank = rank_of(
        Call("all_to_all", "all_to_allv", rf_id=5, in_nelems=6, in_splits=cut, out_splits="[2, 4]"),
        Call("all_to_all", "all_to_allv", rf_id=6, in_nelems=6),
    )
    more = {"in_splits": whole, "out_splits": whole}
    join(rank, account(seen(5, "all_to_allv", **more), seen(6, "all_to_allv", **more)), RULES)
    assert [(c.in_splits, c.out_splits) for c in rank.calls] == [(whole, "[2, 4]"), (whole, whole)]
    assert rank.calls[0].payload_bytes is None  # the trace's own size stands, without a type


def test_another_recording_ties_nothing() -> None:
    """Numbers of records begin anew in each recording: they meet by chance, but not with the same operations."""
    rank = rank_of(*(Call("all_reduce", "allreduce", rf_id=i) for i in range(1, 11)))
    other = [seen(i, "allreduce" if i < 6 else "allgather") for i in range(1, 11)]
    join(rank, account(*other), RULES)
    assert {c.witness for c in rank.calls} == {None}
    sized = rank_of(*(Call("all_reduce", "allreduce", rf_id=i, in_nelems=i) for i in range(1, 11)))
    join(sized, account(*(seen(i) for i in range(1, 11))), RULES)
    assert {c.witness for c in sized.calls} == {None}


def test_a_number_of_two_calls_or_of_none_tells_nothing() -> None:
    rank = rank_of(Call("all_reduce", "allreduce", rf_id=5), Call("all_reduce", "allreduce"))
    join(rank, account(seen(5), seen(5, seq=6), seen(1, rf_id=None)), RULES)
    assert [c.witness for c in rank.calls] == [None, None]


@pytest.mark.parametrize("rank_of_both", [0, 1])
def test_files_of_one_process_are_joined(tmp_path: Path, rank_of_both: int) -> None:
    """A gloo job without shapes: the trace alone knows neither group nor size."""
    r = rank_of_both
    events = [
        op("c10d::allreduce_", 1_000 + 500 * i, 300, ext=i + 1, **{"Record function id": 50 + i}) for i in range(3)
    ]
    write(tmp_path / f"rank{r}.json", events)
    told = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "ranks": [], "group_size": 2}]
    nodes = [
        record(20 + i, group=("0", "default_pg"), where=(0, 1, 2), rank=r, seq=i, rf=50 + i, n=8) for i in range(3)
    ]
    (tmp_path / f"et_rank{r}.json").write_text(et_trace(groups(3, told), *nodes, node(4, "aten::add")))
    rows = tk.analyze(tmp_path, workers=1).arrow("collectives").to_pylist()
    assert [(x["rank"], x["witness"], x["group_id"], x["seq"], x["payload_bytes"]) for x in rows] == [
        (r, "execution-trace:rf_id", "0,1", i, 32) for i in range(3)
    ]
    assert {(x["source_group"], x["source_seq"], x["source_size"]) for x in rows} == {("execution-trace",) * 3}


@pytest.mark.shared
def test_every_call_of_the_recording_is_tied(shared: Path, tmp_path: Path) -> None:
    for rank in range(2):
        for name in (f"rank{rank}.json.gz", f"et_rank{rank}.json.gz"):
            (tmp_path / name).write_bytes((shared / "recordings" / "fret_tk_ep2" / name).read_bytes())
    result = tk.analyze(tmp_path, workers=1)
    rows = result.arrow("collectives").to_pylist()
    assert [r["witness"] for r in rows] == ["execution-trace:rf_id"] * 24
    assert not any("contradict" in h["reason"] for h in result.arrow("health").to_pylist())
