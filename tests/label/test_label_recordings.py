"""Real recordings: every call is found at its time, and no decisive label contradicts the truth."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tracekit.label import label_rank, load_rules
from tracekit.model import Activities, Kind, LabelledRank
from tracekit.parsers import parse

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared
RULES = load_rules()


def cases(shared: Path) -> list[tuple[Path, Path]]:
    found = []
    for labels in sorted(shared.glob("recordings/*/labels_rank*.json")):
        rank = labels.stem.removeprefix("labels_")
        found += [(labels, trace) for trace in sorted(labels.parent.glob(f"{rank}.json*"))]
    return found


def label(path: Path) -> LabelledRank:
    [trace] = parse(path)
    return label_rank(trace, RULES)


def test_calls_match_the_labels(shared: Path):
    wrong = []
    for labels, path in cases(shared):
        out = label(path)
        base = out.meta.base_ns or 0
        want = {(e["op"], round(e["ts"] * 1000) + base): e for e in json.loads(labels.read_text())}
        got = Counter((c.via[-1], c.call_ts) for c in out.calls if c.op != "barrier")
        if got != Counter(want.keys()):
            wrong.append(f"{path}: {got - Counter(want)} {Counter(want) - got}")
        for call in out.calls:
            truth = want.get((call.via[-1], call.call_ts or 0))
            if truth is None:
                continue
            if call.op not in ("send", "recv") and truth["span"]:
                assert call.ts == round(truth["span"]["ts"] * 1000) + base, (path, call)
            found = call.label
            if found.strategy not in ("unknown", *truth["accept"]) and found.tier == "A":
                wrong.append(f"{path}: {call.op} {found.strategy} by {found.rule}, truth {truth['accept']}")
            if found.phase and truth["phase"] and found.phase != truth["phase"]:
                wrong.append(f"{path}: {call.op} phase {found.phase}, truth {truth['phase']}")
            if found.purpose and truth["purpose"] and found.purpose not in truth["purpose"].split("|"):
                wrong.append(f"{path}: {call.op} purpose {found.purpose}, truth {truth['purpose']}")
    assert wrong == []


def union(a: Activities, kind: Kind, lo: int, hi: int) -> list[tuple[int, int]]:
    spans = sorted(
        (max(lo, int(t)), min(hi, int(t + d)))
        for t, d, k in zip(a.ts, a.dur, a.kind, strict=True)
        if k == kind and t < hi and t + d > lo
    )
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def exposed(a: Activities, lo: int, hi: int) -> tuple[float, float]:
    """(comm, exposed comm) in ms within a window."""
    comm, compute = union(a, Kind.COMM, lo, hi), union(a, Kind.COMPUTE, lo, hi)
    hidden = sum(max(0, min(e, y) - max(s, x)) for s, e in comm for x, y in compute)
    total = sum(e - s for s, e in comm)
    return total / 1e6, (total - hidden) / 1e6


def test_exposure_of_the_timed_probes(shared: Path):
    for path in sorted(shared.glob("recordings/overlap_timed*/rank*.json*")):
        [trace] = parse(path)
        out = label_rank(trace, RULES)
        host = trace.host
        for row in np.flatnonzero(host.cat == 1).tolist():
            name = trace.names[host.name[row]]
            if not name.startswith("probe:"):
                continue
            lo = int(host.ts[row])
            comm, bare = exposed(out.activities, lo, lo + int(host.dur[row]))
            if name == "probe:blocking":
                assert bare == pytest.approx(comm, abs=5)
            elif name == "probe:overlapped":
                assert bare < 5
            elif name == "probe:partial":
                assert 4 <= comm - bare <= 5 + 5 + 5  # 5 ms of compute; the sleep itself may overrun by a few ms


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("*/torchtitan_4rank_obs-pr8a/rank*", {"zero3"}),
        ("*/lightllm_deepep_decode_8rank/rank*", {"ep"}),
        ("*/tl_b200/eager_trace*", {"tp"}),
        ("*/megatron_tp8_kineto/*_0.json*", {"tp"}),
        ("*/hta_nccl_args/*", {"dp"}),
    ],
)
def test_what_public_traces_are_known_to_hold(shared: Path, pattern: str, want: set[str]):
    paths = sorted((shared / "corpus").glob(pattern))
    for path in paths:
        found = {c.label.strategy for c in label(path).calls}
        assert found - {"unknown", "housekeeping"} == want, path
