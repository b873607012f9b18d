"""Recorded and public jobs: order agrees with recorded ids, the late are named, nothing waits a negative time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tracekit.analysis.crossrank.clocks import align_clocks
from tracekit.analysis.crossrank.columns import RankCalls, RankInput, load
from tracekit.analysis.crossrank.flat import flatten
from tracekit.analysis.crossrank.matching import Matched, match
from tracekit.analysis.crossrank.waiting import waits
from tracekit.ingest.crossing import host_of
from tracekit.ingest.worker import Failure, Options, work
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from pathlib import Path

WITH_IDS = [
    "tkgloo_fsdp_tp4", "tkgloo_hsdp4", "tkgloo_ep_dp4", "tkgloo_cp_ring_a2a4", "tkgloo_pp_ddp4", "tkgloo_tp_sp2",
    "tkgloo_zero1_2", "tkgloo_ulysses2", "tkgloo_fsdp1_full2",
]  # fmt: skip
SETS = {
    "torchrec_a2a_4rank": 48, "torchrec_resnet18_ddp_2rank": 24, "torchtitan_4rank_obs-pr8a": 112,
    "megatron_tp8_kineto": 672, "lightllm_deepep_decode_8rank": 928, "lightllm_sglang_a_4of8": 464,
}  # fmt: skip
"""Public jobs of several ranks, and how many of their calls match."""


def recordings(paths: list[Path], folder: Path) -> list[RankCalls]:
    """Parse, label and load the files of a job, in order of rank."""
    inputs = []
    for number, path in enumerate(paths):
        found = work(number, str(path), Options(detail=str(folder)))
        assert not isinstance(found, Failure)
        for r in found:
            assert r.meta.rank is not None
            inputs.append(
                RankInput(r.meta.rank, r.detail, r.origin_ns, host_of(r.meta), True, r.tables.steps, r.tables.totals)
            )
    return [load(i) for i in sorted(inputs, key=lambda i: i.rank)]


def public(shared: Path, name: str) -> list[Path]:
    rows = [line.split("\t") for line in (shared / "corpus" / "MANIFEST.tsv").read_text("utf-8").splitlines()]
    return [shared / "corpus" / r[0] for r in rows[1:] if r[2] == name]


def pairs(found: Matched) -> set[frozenset[tuple[int, int]]]:
    return {frozenset(zip(m.parts, m.rows, strict=True)) for m in found.matches}


def cut(part: RankCalls, head: float, tail: float) -> tuple[RankCalls, int]:
    """A recording of the time between two shares of the whole: what starts in it; and how many calls it lacks before.

    The marker of a step that began before is not in it, so that its calls have no step.
    """
    low, high = part.window
    begin, end = low + int(head * (high - low)), low + int(tail * (high - low))
    rows = np.flatnonzero((part.start >= begin) & (part.start <= end))
    keep = slice(int(rows[0]), int(rows[-1]) + 1)
    number = {k: v[keep].copy() for k, v in part.number.items()}
    unmarked = np.isin(number["step"], part.number["step"][: keep.start + 1]) & (begin > low)
    number["step"][unmarked] = NO_TIME
    return RankCalls(
        part.rank, part.host, part.comparable, part.markers, (begin, end),
        {k: (codes[keep], names) for k, (codes, names) in part.text.items()},
        number, part.comms[keep], part.has_comms[keep],
    ), keep.start  # fmt: skip


@pytest.mark.parametrize("case", WITH_IDS)
def test_order_agrees_with_recorded_ids(shared: Path, case: str, tmp_path: Path) -> None:
    parts = recordings(sorted((shared / "recordings" / case).glob("rank*.json.gz")), tmp_path)
    by_id, by_order = match(parts), match(parts, ids=False)
    assert Counter(m.how for m in by_id.matches)["comms-id"] > 0
    assert pairs(by_order) == pairs(by_id)
    assert not any(by_order.unmatched.values())


@pytest.mark.parametrize("case", SETS)
def test_public_jobs_match_and_never_wait_backwards(shared: Path, case: str, tmp_path: Path) -> None:
    parts = recordings(public(shared, case), tmp_path)
    found = match(parts)
    assert sum(len(m.rows) for m in found.matches) == SETS[case]
    flat = flatten(parts, found.matches, clocks := align_clocks(parts, found.matches))
    split = waits(parts, found.matches, flat, len(parts) if "4of8" not in case else 8)
    known = split.wait != NO_TIME
    assert (split.wait[known] >= 0).all()
    assert (split.wait[known] + split.transfer[known] == flat.dur[known]).all()
    assert (split.skew[split.skew != NO_TIME] >= 0).all()
    if case.startswith("lightllm"):
        assert set(split.reason) == {"not-synchronising"}
    else:
        assert known.all()
        assert all(c.aligned and (c.error_ns or 0) < 100_000 for c in clocks)
        latest, every = flat.most(flat.arrival), flat.least(flat.arrival + flat.dur)
        slack = 2 * max(c.error_ns or 0 for c in clocks) + 50_000
        assert (latest <= every + slack).all(), "nobody is done before the last has come"


def test_the_late_rank_of_an_all_to_all_is_the_one_with_the_short_calls(shared: Path, tmp_path: Path) -> None:
    """Its calls last 37 ms in all, those of the others seconds: they wait, it does not."""
    parts = recordings(public(shared, "torchrec_a2a_4rank"), tmp_path)
    found = match(parts)
    flat = flatten(parts, found.matches, align_clocks(parts, found.matches))
    split = waits(parts, found.matches, flat, 4)
    assert {int(flat.part[e]) for e in split.last.tolist() if e >= 0} == {2}
    assert (split.last >= 0).sum() >= 10
    busy = [int(flat.dur[flat.part == p].sum()) for p in range(4)]
    assert busy[2] == 36_693_000
    assert min(busy[0], busy[1], busy[3]) > 3_000_000_000


def test_tensor_parallel_ranks_transfer_the_same_and_wait_the_lag_of_the_last(shared: Path, tmp_path: Path) -> None:
    parts = recordings(public(shared, "megatron_tp8_kineto"), tmp_path)
    found = match(parts)
    flat = flatten(parts, found.matches, align_clocks(parts, found.matches))
    split = waits(parts, found.matches, flat, 8)
    transfer = {int(split.transfer[flat.part == p].sum()) for p in range(8)}
    assert len(transfer) == 1
    lag = flat.most(flat.arrival)[flat.match] - flat.arrival
    assert np.percentile(np.abs(split.wait - lag), 99) < 100_000, "waiting by duration = lag by the clock"


@pytest.mark.parametrize(
    ("case", "ids", "share"),
    [("torchtitan_4rank_obs-pr8a", False, 0.99), ("megatron_tp8_kineto", True, 0.99), ("megatron_tp8_kineto", False, 0.9),
     ("lightllm_deepep_decode_8rank", False, 0.99), ("lightllm_sglang_a_4of8", False, 0.99)],
)  # fmt: skip
def test_pairs_survive_a_missing_rank_and_cut_files(
    shared: Path, case: str, ids: bool, share: float, tmp_path: Path
) -> None:
    """Of the calls that two recordings still have in common, at least that share matches, and none wrongly."""
    parts = recordings(public(shared, case), tmp_path)
    truth = {(m.parts[i], m.rows[i]): n for n, m in enumerate(match(parts).matches) for i in range(len(m.parts))}
    rng = np.random.default_rng(5)
    for _ in range(6):
        kept = sorted(rng.choice(len(parts), len(parts) - 1, replace=False).tolist())
        pieces = [cut(parts[p], rng.uniform(0, 0.3), rng.uniform(0.7, 1)) for p in kept]
        found = match([piece for piece, _ in pieces], ids=ids)
        for m in found.matches:
            assert len({truth[kept[p], r + pieces[p][1]] for p, r in zip(m.parts, m.rows, strict=True)}) == 1
        seen: Counter[Any] = Counter(
            truth.get((p, before + r)) for p, (piece, before) in zip(kept, pieces, strict=True) for r in range(len(piece))
        )  # fmt: skip
        common = sum(k for n, k in seen.items() if k > 1 and n is not None)
        assert sum(len(m.rows) for m in found.matches) >= share * common


def test_an_injected_straggler_is_waited_for(shared: Path, tmp_path: Path) -> None:
    """Rank 1 computes 80 ms before each probe; rank 0 waits that long (two cores: ± 8 ms), rank 1 does not."""
    parts = recordings(sorted((shared / "recordings" / "overlap_timed2").glob("rank*.json.gz")), tmp_path)
    found = match(parts)
    flat = flatten(parts, found.matches, clocks := align_clocks(parts, found.matches))
    assert [c.offset_ns for c in clocks] == [0, 0]
    split = waits(parts, found.matches, flat, 2)
    probes = [i for i, m in enumerate(found.matches) if parts[0].texts("scope")[m.rows[0]] == "probe:straggler"]
    assert len(probes) == 3
    for i in probes:
        begin = int(flat.first[i])
        first = split.wait[begin : begin + 2].tolist()
        assert 72_000_000 <= first[0] <= 88_000_000
        assert first[1] == 0
        assert parts[flat.part[split.last[i]]].rank == 1


@pytest.mark.parametrize("case", ["pp_1f1b4", "pptime_gpipe4", "pptime_zbv4", "tkgloo_pp_interleaved2"])
def test_messages_of_pipelines_pair_and_none_arrives_before_it_was_sent(
    shared: Path, case: str, tmp_path: Path
) -> None:
    parts = recordings(sorted((shared / "recordings" / case).glob("rank*.json.gz")), tmp_path)
    found = match(parts)
    messages = [m for m in found.matches if m.stream.kind == "p2p"]
    ops = [p.texts("op") for p in parts]
    assert sum(2 for _ in messages) == sum(o in ("send", "recv") for words in ops for o in words)
    for m in messages:
        assert m.stream.pair is not None
        sent = 0 if parts[m.parts[0]].rank == m.stream.pair[0] else 1
        got = 1 - sent
        assert ops[m.parts[sent]][m.rows[sent]] == "send"
        assert parts[m.parts[sent]].begin[m.rows[sent]] <= parts[m.parts[got]].end[m.rows[got]]
