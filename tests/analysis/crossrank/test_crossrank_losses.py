"""Random jobs whose recordings lost calls at either end, in the middle or in bursts, on any clocks, with or without
steps and ids: after the check against the clocks no match without an id is of two calls.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from crossrank_job import Event, Job, collectives, columns
from test_crossrank_matching import GROUPS, OPS, check

from tracekit.analysis.crossrank.matching import Matched, match
from tracekit.analysis.crossrank.verify import settle

if TYPE_CHECKING:
    from tracekit.analysis.crossrank.columns import RankCalls

ONCE_WRONG = [131, 262, 408, 418, 435, 523, 524, 560, 577, 651, 749, 858, 914, 962, 1032, 1178, 1303, 1425]
"""Pairs at one end of both recordings; few calls that end together by accident; messages beyond shared steps; …"""


def messages(rng: random.Random, ranks: int, steps: int, per_step: int, gap: int) -> Job:
    """Messages between neighbours both ways; the receiver may be late, an eager send never waits."""
    job, free, truth = Job({r: [] for r in range(ranks)}), [0] * ranks, 0
    eager, group = rng.random() < 0.5, ",".join(map(str, range(ranks)))
    for step in range(steps):
        for i in range(per_step):
            for a in range(ranks - 1):
                truth += 1
                x, y = (a, a + 1) if i % 3 else (a + 1, a)
                sent, ready = free[x] + rng.randrange(gap), free[y] + rng.randrange(gap)
                done = max(sent, ready) + 20_000
                gone, size = sent + 20_000 if eager else done, rng.choice([64, 64, 64, 128])
                common = {"step": step, "name": "pp", "size": size, "seq": truth, "group_size": ranks}
                job.ranks[x].append(Event(truth, "send", group, sent, gone, dst=y, **common))
                job.ranks[y].append(Event(truth, "recv", group, ready, done, src=x, **common))
                free[x], free[y] = gone, done
        free = [max(free)] * ranks if rng.random() < 0.7 else free
    return job


def job_of(rng: random.Random) -> Job:
    gap = rng.choice([20, 50, 100, 200, 300, 500, 1000, 3000]) * 1000
    ranks, steps = rng.choice([2, 2, 3, 4]), rng.randint(1, 12)
    if rng.random() < 0.4:
        return messages(rng, ranks, steps, rng.randint(1, 6), gap)
    groups = rng.choice([[tuple(range(ranks))], [tuple(range(ranks))], GROUPS])
    ops, sizes = OPS[: rng.choice([1, 2, 3])], [64, 64, 128][: rng.choice([1, 3])]
    program = [(rng.randrange(len(groups)), rng.choice(ops), rng.choice(sizes)) for _ in range(rng.randint(1, 8))]
    steps = rng.randint(20, 60) // len(program) + 2 if rng.random() < 0.4 else steps
    late = {rng.randrange(4): rng.randrange(2_000_000)} if rng.random() < 0.3 else None
    return collectives(rng, groups, steps, program, gap=gap, transfer=rng.choice([5, 20, 80]) * 1000, late=late)


def lossy(rng: random.Random, own: list[Event]) -> list[int]:
    """Positions of what is left."""
    how = rng.choice(["none", "ends", "ends", "middle", "burst", "all"])
    first, last = 0, len(own)
    if how in ("ends", "all"):
        first = rng.randrange(max(1, len(own) // 2))
        last = len(own) - rng.randrange(max(1, (len(own) - first) // 2 + 1))
    kept = set(range(first, last))
    if how in ("middle", "all"):
        share = rng.choice([0.02, 0.05, 0.1, 0.2, 0.4])
        kept = {i for i in kept if rng.random() >= share}
    if how == "burst":
        begin = rng.randrange(len(own))
        kept -= set(range(begin, begin + rng.randint(1, max(1, len(own) // 3))))
    return sorted(kept)


def recorded(seed: int) -> tuple[list[RankCalls], list[list[Event]]]:
    rng = random.Random(seed)
    job = job_of(rng)
    hosts, comparable, markers = rng.choice(["one", "each", "unknown"]), rng.random() < 0.8, rng.random() < 0.5
    ids, skew = rng.choice(["none", "none", "both", "seq", "comms"]), rng.choice([0, 0, 5000, 20000])
    parts, events = [], []
    for rank, own in job.ranks.items():
        at = lossy(rng, own) if own and rng.random() > 0.08 else []
        if not at:
            continue
        low = own[at[0] - 1].start + 1 if at[0] else own[0].start
        low = rng.randrange(min(low, own[at[0]].start), own[at[0]].start + 1)
        kept = [own[i] for i in at]
        whole = {e.step for e in kept}
        if rng.random() < 0.7:  # else steps are marked though some of their calls are lost
            whole = {s for s in whole if [e for e in kept if e.step == s] == [e for e in own if e.step == s]}
        shown = []
        for e in kept:
            end = e.end + rng.randrange(-skew // 2, skew // 2 + 1) if skew and e.end - e.start > skew else e.end
            shown.append(replace(e, end=end, step=e.step if e.step in whole else None,
                                 seq=e.seq if ids in ("both", "seq") else None,
                                 comms=e.comms if ids in ("both", "comms") else None))  # fmt: skip
        one = hosts == "one"
        parts.append(
            columns(
                rank, shown, ids=ids != "none", comparable=comparable, markers=markers,
                offset=0 if one else rng.randrange(-5_000_000, 5_000_000),
                drift_ppm=0 if one else rng.choice([0, 0, 20, -50]),
                host={"one": "h", "each": f"h{rank}", "unknown": None}[hosts], window=(low, kept[-1].end),
            )
        )  # fmt: skip
        events.append(kept)
    return parts, events


@pytest.mark.parametrize("seed", [*range(120), *ONCE_WRONG])
def test_no_match_is_of_two_calls(seed: int) -> None:
    parts, events = recorded(seed)
    found = match(parts)
    settle(parts, found)
    check(found, events)


@pytest.mark.parametrize(("hosts", "why"), [("hh", "order-differs"), ("gh", "clocks-differ")])
def test_calls_of_steps_numbered_differently_are_undone(hosts: str, why: str) -> None:
    """One host has one clock, which is not to blame."""
    job = collectives(random.Random(4), [(0, 1)], 12, [(0, "all_reduce", 64)])
    events = [[replace(e, comms=None) for e in job.ranks[r]] for r in range(2)]
    parts = [columns(r, e, host=hosts[r], ids=False, markers=True) for r, e in enumerate(events)]
    found = match(parts)
    assert check(found, events) == 24
    parts[1].number["step"][5] = 7
    settle(parts, found)
    assert found.unmatched[1] == {5: why}
    assert len(found.matches) == 11


def test_ids_are_believed_whatever_the_clocks_say() -> None:
    job = collectives(random.Random(5), [(0, 1)], 12, [(0, "all_reduce", 64)])
    events = [job.ranks[0], [replace(e, start=e.start + 7_000_000 * i, end=e.end + 7_000_000 * i)
                             for i, e in enumerate(job.ranks[1])]]  # fmt: skip
    parts = [columns(r, e, host="h") for r, e in enumerate(events)]
    found = match(parts)
    settle(parts, found)
    assert len(found.matches) == 12
    for numbered in parts:
        numbered.has_comms[:] = False
    found = match(parts)
    assert {m.how for m in found.matches} == {"seq"}
    settle(parts, found)
    assert isinstance(found, Matched)
    assert not found.matches
