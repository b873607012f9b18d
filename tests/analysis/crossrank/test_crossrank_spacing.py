"""Calls as close together as their ends differ, any clock, any losses: pairs without ids are right, or there are none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from crossrank_job import collectives, columns
from test_crossrank_matching import check

from tracekit.analysis.crossrank.matching import match

ONCE_WRONG = [52, 98, 157, 302, 456, 632, 934, 975]
"""Losses that one shift explained by an extreme difference of the clocks."""


@pytest.mark.parametrize("seed", [*range(32), *ONCE_WRONG])
def test_no_wrong_pair(seed: int) -> None:
    rng = random.Random(seed)
    ranks = rng.choice([2, 2, 3, 4])
    gap = rng.choice([20, 40, 60, 100, 150, 200, 300, 500, 1000]) * 1000
    ops, sizes = ["all_reduce", "all_gather"], [64, 64, 128]
    program = [
        (0, rng.choice(ops[: rng.choice([1, 2])]), rng.choice(sizes[: rng.choice([1, 3])]))
        for _ in range(rng.randint(1, 4))
    ]
    steps = rng.randint(20, 80) // len(program) + 3
    job = collectives(rng, [tuple(range(ranks))], steps, program, gap=gap, transfer=rng.choice([5, 20, 80]) * 1000)
    lost, skew = rng.choice([0.02, 0.05, 0.1, 0.2]), rng.choice([0, 5000, 20000])
    hosts, comparable = rng.choice(["one", "each", "unknown"]), rng.random() < 0.8
    parts, events = [], []
    for rank in range(ranks):
        own = job.ranks[rank]
        first, last = rng.randrange(max(1, len(own) // 4)), len(own) - rng.randrange(max(1, len(own) // 4))
        kept = [
            replace(e, end=e.end + rng.randrange(-skew // 2, skew // 2 + 1)) if skew and e.end - e.start > skew else e
            for e in own[first:last]
            if rng.random() >= lost
        ]
        if len(kept) < 12:  # of a few calls on either side, nothing tells that some were lost
            continue
        one = hosts == "one"
        parts.append(
            columns(
                rank, [replace(e, step=None) for e in kept], ids=False, comparable=comparable,
                offset=0 if one else rng.randrange(-5_000_000, 5_000_000),
                drift_ppm=0 if one else rng.choice([0, 0, 20, -50]),
                host={"one": "h", "each": f"h{rank}", "unknown": None}[hosts],
                window=(own[first].start, own[last - 1].end),
            )
        )  # fmt: skip
        events.append(kept)
    check(match(parts), events)
