"""A flight recorder's account of the calls that a trace shows: what is tied, what is filled in, what is contradicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tracekit.label import load_rules
from tracekit.label.join import join
from tracekit.label.witness import no_activities
from tracekit.model import Call, LabelledRank, ProcessGroup, TraceMeta, Witness, WitnessCall, WitnessGroup

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_767_189_400_000_000_000
RULES = load_rules()
GROUP = WitnessGroup("5", "5", "mesh_tp", 2, (2, 3))


def trace(*calls: Call, groups: tuple[ProcessGroup, ...] = ()) -> LabelledRank:
    """A trace with these calls and nothing else."""
    meta = TraceMeta("t.json", rank=2, base_ns=T0, groups=groups)
    return LabelledRank(meta, 2, no_activities(), list(calls), [], {}, [], (T0, T0 + 10**9))


def call(at: int, op: str = "all_reduce", **more: object) -> Call:
    """A call whose operator runs for 100 µs from `at` µs on."""
    start = T0 + at * 1000
    return replace(Call(op, f"c10d::{op}", call_ts=start, call_end=start + 100_000), **more)  # type: ignore[arg-type]


def note(at: int, op: str = "nccl:all_reduce", seq: int = 1, **more: object) -> WitnessCall:
    """An entry made `at` µs after the start."""
    return replace(WitnessCall(op, "5", seq=seq, created_ns=T0 + at * 1000), **more)  # type: ignore[arg-type]


def told(*calls: WitnessCall, group: WitnessGroup = GROUP) -> Witness:
    """A dump with these entries."""
    return Witness(TraceMeta("dump"), "flight-recorder", [group], list(calls))


def reasons(rank: LabelledRank) -> dict[str, int]:
    """Health by reason."""
    return {h.reason: h.count for h in rank.health}


def test_by_time_a_call_gets_group_number_and_frames() -> None:
    rank = trace(call(0), call(200))
    frame = "torch/utils/checkpoint.py(9): recompute_fn"
    join(rank, told(note(10, seq=7, frames=(frame, "main.py(1): main")), note(210, seq=8)), RULES)
    first, second = rank.calls
    assert (first.group_name, first.group_desc, first.group_size, first.members) == ("5", "mesh_tp", 2, (2, 3))
    assert [c.seq for c in rank.calls] == [7, 8]
    assert [c.ordinal for c in rank.calls] == [0, 1]
    assert (first.witness, second.witness) == ("flight-recorder:time", "flight-recorder:time")
    assert first.frames == (frame,)
    assert reasons(rank) == {"calls tied to the flight-recorder by time": 2}


def test_by_number_the_time_may_lie_outside() -> None:
    rank = trace(call(0, group_name="5", seq=1), call(200, group_name="5", seq=2))
    join(rank, told(note(900, seq=2), note(800, seq=1)), RULES)
    assert [c.witness for c in rank.calls] == ["flight-recorder:seq"] * 2
    assert [c.group_desc for c in rank.calls] == ["mesh_tp"] * 2


def test_numbers_of_another_hour_tie_nothing() -> None:
    rank = trace(call(0, group_name="5", seq=1))
    join(rank, told(note(4_000_000_000, seq=1)), RULES)
    assert rank.calls[0].witness is None


def test_two_entries_within_one_call_tie_none() -> None:
    rank = trace(call(0))
    join(rank, told(note(10), note(20, seq=2)), RULES)
    assert rank.calls[0].witness is None
    assert reasons(rank) == {"collectives that the flight-recorder does not hold": 1}


def test_another_operation_within_the_call_is_a_contradiction() -> None:
    rank = trace(call(0, "all_gather"))
    join(rank, told(note(10)), RULES)
    assert rank.calls[0].witness is None
    assert "trace and flight-recorder contradict each other: operation; the trace counts" in reasons(rank)


def test_gloo_notes_an_all_reduce_for_a_reduce_scatter() -> None:
    rank = trace(call(0, "reduce_scatter"))
    join(rank, told(note(10, "gloo:all_reduce")), RULES)
    assert (rank.calls[0].op, rank.calls[0].group_name) == ("reduce_scatter", "5")


def test_the_traces_own_word_stands() -> None:
    rank = trace(call(0, group_name="9", group_desc="mesh_dp", members=(0, 2), seq=4, in_nelems=6))
    join(rank, told(note(10, in_sizes=[[2, 4]])), RULES)
    one = rank.calls[0]
    assert (one.group_name, one.group_desc, one.members, one.seq, one.in_nelems) == ("9", "mesh_dp", (0, 2), 4, 6)
    odd = {r for r in reasons(rank) if "contradict" in r}
    assert len(odd) == 3


def test_members_of_a_group_that_is_only_named_come_from_the_trace() -> None:
    rank = trace(call(0), groups=(ProcessGroup("5", "mesh_tp", 2, (4, 5)),))
    join(rank, told(note(10), group=WitnessGroup("5", "5", "mesh_tp")), RULES)
    assert (rank.calls[0].members, rank.calls[0].group_size) == ((4, 5), 2)


def test_a_trace_without_dates_is_not_tied_by_time() -> None:
    rank = trace(call(0))
    rank.meta.base_ns, rank.window_ns = None, (0, 100)
    join(rank, told(note(10)), RULES)
    assert rank.calls[0].witness is None


@pytest.mark.parametrize("name", ["fr_ep2", "fret_tk_ep2", "rec_fsdp_tp4", "fr_pp_1f1b2", "rec_pp_1f1b4"])
def test_every_collective_of_the_recordings_is_tied(shared: Path, name: str) -> None:
    import tracekit as tk

    folder = shared / "recordings" / name
    result = tk.analyze([*folder.glob("rank*.json.gz"), *folder.glob("fr_rank*")], workers=1)
    rows = result.arrow("collectives").to_pylist()
    loose = [r for r in rows if r["op"] not in ("send", "recv") and r["witness"] is None]
    assert rows
    assert not loose
    assert all(r["group_name"] is not None and r["group_size"] for r in rows)
    assert not [h for h in result.run.tables["health"] if "contradict" in h["reason"]]
