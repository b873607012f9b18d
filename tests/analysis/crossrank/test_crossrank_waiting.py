"""Waiting, verdicts, tables and the split of exposed time, against small jobs counted by hand or instant by instant."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from crossrank_job import Event, Job, collectives, columns

from tracekit.analysis.crossrank.clocks import Clock, align_clocks
from tracekit.analysis.crossrank.flat import Flat, flatten
from tracekit.analysis.crossrank.imbalance import imbalance_rows
from tracekit.analysis.crossrank.matches import Match, Matches
from tracekit.analysis.crossrank.matching import Matched, match
from tracekit.analysis.crossrank.sites import waiting_rows
from tracekit.analysis.crossrank.streams import find_streams
from tracekit.analysis.crossrank.tables import match_table
from tracekit.analysis.crossrank.waiting import Waits, bus_factor, verdict, waits
from tracekit.analysis.tables import to_rows
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from tracekit.analysis.crossrank.columns import RankCalls


def analysed(parts: list[RankCalls], world: int | None = None) -> tuple[Matched, Flat, Waits, list[dict[str, Any]]]:
    found = match(parts)
    flat = flatten(parts, found.matches, align_clocks(parts, found.matches))
    split = waits(parts, found.matches, flat, world)
    return found, flat, split, to_rows(match_table(parts, found.matches, flat, split, world))


def one_call(starts: list[int], end: int, **fields: Any) -> list[RankCalls]:
    """One call on ranks 0 … n-1 of one host."""
    n = len(starts)
    group = ",".join(map(str, range(n)))
    base = {
        "op": "all_reduce",
        "group": group,
        "step": 0,
        "name": "g",
        "size": 1000,
        "seq": 1,
        "group_size": n,
    } | fields
    return [columns(r, [Event(1, start=s, end=end, **base)], host="h") for r, s in enumerate(starts)]


def test_the_last_waits_for_nobody_and_the_others_for_it() -> None:
    _, _, split, rows = analysed(one_call([0, 3_000_000, 9_000_000], 10_000_000))
    assert split.wait.tolist() == [9_000_000, 6_000_000, 0]
    assert split.transfer.tolist() == [1_000_000] * 3
    row = rows[0]
    assert (row["first_rank"], row["last_rank"], row["last_by"], row["skew_ns"]) == (0, 2, "clock", 9_000_000)
    assert row["verdict"] == "skew-bound"
    assert row["wait_ns"] == 15_000_000
    assert row["algbw_gbps"] == pytest.approx(4000 / 1_000_000)
    assert row["busbw_gbps"] == pytest.approx(4000 / 1_000_000 * 4 / 3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"op": "broadcast"}, "not-synchronising"),
        ({"op": "reduce"}, "not-synchronising"),
        ({"op": "all_to_all", "peers": 1}, "not-synchronising"),
        ({"group": "0,1,2,3", "group_size": 4}, "ranks-missing"),
        ({"group": "name=g/3"}, None),
        ({"op": "all_to_all", "peers": 2}, None),
    ],
)
def test_calls_that_cannot_be_split_say_why(change: dict[str, Any], reason: str | None) -> None:
    _, _, split, rows = analysed(one_call([0, 3_000_000, 9_000_000], 10_000_000, **change))
    assert set(split.reason) == {reason}
    assert (split.wait == NO_TIME).all() == (reason is not None)
    assert rows[0]["reason"] == reason
    assert (rows[0]["verdict"] == "inconclusive") == (reason is not None)


def test_without_a_common_clock_the_shortest_tells_the_last_and_waiting_stays() -> None:
    parts = one_call([0, 3_000_000, 9_000_000], 10_000_000)
    for i, p in enumerate(parts):
        p.host, p.comparable = None, False
        p.number["ts_ns"] += 10**9 * i
    _, _, split, rows = analysed(parts)
    assert split.wait.tolist() == [9_000_000, 6_000_000, 0]
    assert (rows[0]["last_rank"], rows[0]["last_by"], rows[0]["skew_ns"]) == (2, "duration", None)


@pytest.mark.parametrize("fields", [{"op": "broadcast"}, {"op": "all_to_all", "peers": 1}])
def test_without_a_common_clock_a_short_call_that_leaves_alone_is_not_called_late(fields: dict[str, Any]) -> None:
    parts = one_call([0, 3_000_000, 9_000_000], 10_000_000, **fields)
    for p in parts:
        p.host, p.comparable = None, False
    _, _, _, rows = analysed(parts)
    assert (rows[0]["last_rank"], rows[0]["last_by"]) == (None, None)


def test_messages_without_a_common_clock_say_so() -> None:
    parts = message((700, 100_000), (100, 900_000))
    for p in parts:
        p.host, p.comparable = None, False
    _, _, split, rows = analysed(parts)
    assert split.reason == ["clock", "clock"]
    assert (rows[0]["last_rank"], rows[0]["wait_ns"]) == (None, None)


def test_a_difference_below_the_error_accuses_nobody() -> None:
    parts = one_call([0, 1000, 2000], 10_000_000)
    for i, p in enumerate(parts):
        p.host, p.comparable = None, False
        p.number["ts_ns"] += 10**9 * i
    assert analysed(parts)[3][0]["last_rank"] is None


def message(send: tuple[int, int], recv: tuple[int, int]) -> list[RankCalls]:
    a = Event(1, "send", "0,1", *send, 0, "pp", 8, dst=1, group_size=2)
    b = Event(1, "recv", "0,1", *recv, 0, "pp", 8, src=0, group_size=2)
    return [columns(0, [a], host="h", markers=True), columns(1, [b], host="h", markers=True)]


def test_a_receive_waits_until_its_sender_begins() -> None:
    _, flat, split, rows = analysed(message((700, 1000), (100, 1000)))
    got = int(np.flatnonzero(flat.part == 1)[0])
    assert (split.wait[got], split.transfer[got]) == (600, 300)
    assert (split.wait[1 - got], split.transfer[1 - got]) == (0, 300)
    assert (rows[0]["src_rank"], rows[0]["dst_rank"], rows[0]["kind"], rows[0]["ranks_expected"]) == (0, 1, "p2p", 2)


def test_a_buffered_send_does_not_wait() -> None:
    """It was gone before the receiver came."""
    _, flat, split, _ = analysed(message((0, 200), (500, 700)))
    sent = int(np.flatnonzero(flat.part == 0)[0])
    assert split.reason[sent] == "eager-send"
    assert split.wait[1 - sent] == 0


def test_one_kernel_of_several_messages_waits_once() -> None:
    """Two receives share a kernel: its waiting is that for the later sender, at the call that owns it."""
    sends = [Event(i, "send", "0,1,2", s, 1000, 0, "pp", 8, dst=2, group_size=3) for i, s in ((1, 300), (2, 800))]
    recvs = [Event(i, "recv", "0,1,2", 100, 1000, 0, "pp", 8, src=i - 1, group_size=3) for i in (1, 2)]
    parts = [columns(0, [sends[0]], host="h", markers=True), columns(1, [sends[1]], host="h", markers=True),
             columns(2, recvs, host="h", markers=True)]  # fmt: skip
    parts[2].number["coalesced_into"][1] = 0
    _, flat, split, _ = analysed(parts)
    owner = int(np.flatnonzero((flat.part == 2) & (flat.row == 0))[0])
    other = int(np.flatnonzero((flat.part == 2) & (flat.row == 1))[0])
    assert (split.wait[owner], split.transfer[owner]) == (700, 200)
    assert split.reason[other] == "coalesced"


def test_a_call_that_a_file_gives_no_length_is_not_split() -> None:
    parts = one_call([0, 3_000_000, 9_000_000], 10_000_000)
    parts[2].number["dur_ns"][:] = 0
    _, _, split, rows = analysed(parts)
    assert split.reason == ["untimed"] * 3
    assert (rows[0]["wait_ns"], rows[0]["transfer_ns"], rows[0]["verdict"]) == (None, None, "inconclusive")


def test_a_message_that_came_before_it_was_sent_has_no_transfer() -> None:
    send = Event(1, "send", "0,1", 5_000_000, 5_500_000, 0, src=0, dst=1, size=10)
    recv = Event(1, "recv", "0,1", 0, 1_000_000, 0, src=0, dst=1, size=10)
    parts = [columns(0, [send], host="h", markers=True), columns(1, [recv], host="h", markers=True)]
    found = match(parts)
    found.matches = found.matches or Matches.of([Match(find_streams(parts).streams[0], "order", (0, 1), (0, 0))])
    flat = flatten(parts, found.matches, [Clock("reference", 0, 0, component=0), Clock("same-host", 0, 0, component=0)])
    split = waits(parts, found.matches, flat, None)
    received = flat.part.tolist().index(1)
    assert (int(split.wait[received]), split.reason[received]) == (NO_TIME, "clock")


@pytest.mark.parametrize(
    ("wait", "dur", "word"),
    [(0, 100, "transfer-bound"), (25, 100, "transfer-bound"), (26, 100, "mixed"), (49, 100, "mixed"),
     (50, 100, "skew-bound"), (0, 0, "transfer-bound")],
)  # fmt: skip
def test_verdicts(wait: int, dur: int, word: str) -> None:
    assert verdict(wait, dur) == word


@pytest.mark.parametrize(
    ("op", "n", "factor"),
    [("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75), ("all_to_all", 4, 0.75), ("broadcast", 8, 1), ("send_recv", 2, 1)],
)  # fmt: skip
def test_bus_factors_of_nccl_tests(op: str, n: int, factor: float) -> None:
    assert bus_factor(op, n) == factor


def labelled_job(job: Job) -> list[RankCalls]:
    parts = [columns(r, e, host="h") for r, e in job.ranks.items()]
    for p in parts:
        p.text["strategy"] = (np.zeros(len(p), np.int32), ["dp"])
    return parts


def test_the_late_rank_is_named_over_many_calls_and_only_then() -> None:
    slow = labelled_job(collectives(random.Random(1), [(0, 1, 2)], 20, [(0, "all_reduce", 64)], late={1: 5_000_000}))
    found, flat, split, _ = analysed(slow)
    table = waiting_rows(slow, found.unmatched, flat, split, set())
    assert table[0]["op"] is None
    assert (table[0]["strategy"], table[0]["late_rank"], table[0]["late_ratio"]) == ("dp", 1, 1.0)
    assert table[0]["verdict"] == "skew-bound"
    assert table[0]["wait_ns"] + table[0]["transfer_ns"] == table[0]["split_ns"] == table[0]["dur_ns"]
    even = labelled_job(collectives(random.Random(2), [(0, 1, 2)], 60, [(0, "all_reduce", 64)]))
    found, flat, split, _ = analysed(even)
    assert waiting_rows(even, found.unmatched, flat, split, set())[0]["late_rank"] is None


def test_few_calls_give_no_verdict() -> None:
    parts = labelled_job(collectives(random.Random(1), [(0, 1)], 2, [(0, "all_reduce", 64)]))
    found, flat, split, _ = analysed(parts)
    assert waiting_rows(parts, found.unmatched, flat, split, set())[0]["verdict"] == "inconclusive"


def test_uneven_payloads_cost_what_the_largest_takes_longer_than_the_mean() -> None:
    events = [Event(1, "all_to_all", "0,1", 0, 1000, 0, "ep", size, 1, group_size=2) for size in (300, 100)]
    parts = [columns(r, [e], host="h") for r, e in enumerate(events)]
    for p in parts:
        p.text["strategy"] = (np.zeros(1, np.int32), ["ep"])
    found, flat, split, _ = analysed(parts)
    (row,) = imbalance_rows(parts, found.matches, flat, split, [], set())
    assert (row["kind"], row["max"], row["max_rank"], row["mean"], row["ratio"]) == ("payload", 1200, 0, 800, 1.5)
    assert row["cost_ns"] == 333


def test_compute_of_ranks_is_compared_within_steps_and_groups() -> None:
    job = collectives(random.Random(1), [(0, 1), (2, 3)], 1, [(0, "all_reduce", 8), (1, "all_reduce", 8)])
    parts = labelled_job(job)
    found, flat, split, _ = analysed(parts)
    loads = [100, 300, 200, 200]
    breakdown = [
        {"rank": r, "device": 0, "step": 0, "compute_only_ns": ns - 50, "overlapped_ns": 50}
        for r, ns in enumerate(loads)
    ]
    complete = {(r, 0, 0) for r in range(4)}
    rows = imbalance_rows(parts, found.matches, flat, split, breakdown, complete)
    by_group = {r["group_id"]: (r["mean"], r["max_rank"], r["min_rank"], r["cost_ns"], r["whole"]) for r in rows}
    assert by_group == {None: (200, 1, 0, 100, True), "0,1": (200, 1, 0, 100, True), "2,3": (200, 2, 2, 0, True)}
