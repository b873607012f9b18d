"""Real recordings with part of their evidence taken away: fewer labels, but no decisive one that is wrong."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import accuracy
import pytest
from msgspec.structs import replace

from tracekit.label import label_rank, load_rules
from tracekit.parsers import parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.model import RankTrace

pytestmark = pytest.mark.shared
CASES = ["tkgloo_cp_ring_ag2", "tkgloo_ep_dp4", "tkgloo_ulysses2", "tkgloo_disagg2", "tkgloo_tp_sp2", "tkgloo_hsdp4",
         "tkgloo_pp_1f1b2", "tkgloo_fsdp_tp4", "tkgloo_zero1_2", "ep2", "ulysses2", "tp_sp2"]  # fmt: skip
KEPT = re.compile(r"c10d|aten::|autograd::|ProfilerStep|gloo:|record_param|Optimizer")


def without_descriptions(t: RankTrace) -> None:
    t.comm = [replace(c, pg_desc="undefined") if c.pg_desc else c for c in t.comm]
    t.meta = replace(t.meta, groups=tuple(replace(g, desc="undefined") for g in t.meta.groups))


def without_scopes(t: RankTrace) -> None:
    t.names = [n if KEPT.search(n) else f"x{i}" for i, n in enumerate(t.names)]


def without_autograd(t: RankTrace) -> None:
    t.names = [f"x{i}" if n.startswith("autograd::") else n for i, n in enumerate(t.names)]


def without_steps(t: RankTrace) -> None:
    t.names = [f"x{i}" if n.startswith(("ProfilerStep", "Optimizer")) else n for i, n in enumerate(t.names)]


def without_descriptions_and_scopes(t: RankTrace) -> None:
    without_descriptions(t)
    without_scopes(t)


def with_name(name: str) -> Callable[[RankTrace], None]:
    def add(t: RankTrace) -> None:
        t.names = [*t.names, name]

    add.__name__ = f"with {name}"
    return add


CHANGES = [
    without_descriptions, without_scopes, without_descriptions_and_scopes, without_autograd, without_steps,
    with_name("_GatherTokens"), with_name("MatmulWithAsyncCommunication"), with_name("vllm::x"), with_name("sglang::x"),
    with_name("_ReduceFromModelParallelRegion"), with_name("All2All_Pooled_Req"),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_less_evidence_gives_no_wrong_decisive_label(shared: Path, change: Callable[[RankTrace], None]) -> None:
    rules = load_rules()
    score = accuracy.Score()
    for case in CASES:
        labels, path = accuracy.files(shared, case)[0]
        [trace] = parse(path)
        change(trace)
        out = label_rank(trace, rules)
        base = out.meta.base_ns or 0
        found = {(c.via[-1], c.call_ts): c for c in out.calls if c.via}
        for truth in json.loads(labels.read_text()):
            accuracy.judge(score, found[(truth["op"], round(truth["ts"] * 1000) + base)], truth)
    assert score.events > 300
    assert score.decisive == 0, score.notes
