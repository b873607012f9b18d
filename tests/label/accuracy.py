"""How right the labels of real recordings are, event by event: a call is matched by its rank and its start.

python -m pytest -s tests/label/test_recordings_accuracy.py     prints the table
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from tracekit.label import label_rank, load_rules
from tracekit.parsers import parse

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.model import Call, Label

P2P = ("send", "recv")


@dataclass(slots=True)
class Score:
    """Events of one case. `offered`: unknown, with the truth among the alternatives; `decisive`: wrong with tier A or B."""

    events: int = 0
    right: int = 0
    offered: int = 0
    unknown: int = 0
    wrong: int = 0
    decisive: int = 0
    unmatched: int = 0
    phases: int = 0
    phases_right: int = 0
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def undecided(self) -> int:
        """Events left unknown."""
        return self.offered + self.unknown

    def strategy_ratio(self) -> float:
        """Right among the events that are not honestly undecided (0–1)."""
        decidable = self.events - self.offered
        return self.right / decidable if decidable else 1.0

    def phase_ratio(self) -> float:
        """Right phases among the events whose phase the recording tells (0–1)."""
        return self.phases_right / self.phases if self.phases else 1.0


def fits(strategy: str, accept: list[str]) -> bool:
    """True for a label that counts as right; a parent such as zero1|zero2 does when it holds the truth."""
    return bool(set(strategy.split("|")) & set(accept))


def judge(score: Score, call: Call, truth: dict[str, Any]) -> None:
    """Add one event to the score of its case."""
    label: Label = call.label
    score.events += 1
    if fits(label.strategy, truth["accept"]):
        score.right += 1
    elif label.strategy in ("unknown", "conflict"):
        offered = any(fits(s, truth["accept"]) for s, _ in label.alternatives)
        score.offered += offered
        score.unknown += not offered
        score.notes[
            f"{call.op} {label.strategy}, truth {truth['strategy']} ({truth['note']}), {label.alternatives}"
        ] += 1
    else:
        score.wrong += 1
        score.decisive += label.tier in ("A", "B")
        score.notes[f"{call.op} {label.strategy} {label.tier} by {label.rule}, truth {truth['strategy']} "
                    f"({truth['note']})"] += 1  # fmt: skip
    if truth["phase"] and call.op not in P2P:
        score.phases += 1
        score.phases_right += label.phase == truth["phase"]
        if label.phase != truth["phase"]:
            score.notes[f"{call.op} phase {label.phase}, truth {truth['phase']} ({truth['note']})"] += 1


def score_rank(score: Score, labels: Path, trace_path: Path) -> None:
    """Judge every labelled event of one rank."""
    [trace] = parse(trace_path)
    out = label_rank(trace, load_rules())
    base = out.meta.base_ns or 0
    found = {(c.via[-1], c.call_ts): c for c in out.calls if c.via}
    for truth in json.loads(labels.read_text()):
        call = found.get((truth["op"], round(truth["ts"] * 1000) + base))
        if call is None:
            score.events += 1
            score.unmatched += 1
        else:
            judge(score, call, truth)


def files(shared: Path, case: str) -> list[tuple[Path, Path]]:
    """(labels, trace) of every labelled rank of a case."""
    folder = shared / "recordings" / case
    pairs = []
    for labels in sorted(folder.glob("labels_rank*.json")):
        rank = labels.stem.removeprefix("labels_")
        pairs += [(labels, trace) for trace in sorted(folder.glob(f"{rank}.json*"))]
    return pairs


def cases(shared: Path) -> list[str]:
    """Names of all recordings with labels."""
    return sorted({p.parent.name for p in shared.glob("recordings/*/labels_rank*.json")})


@cache
def score_case(shared: Path, case: str) -> Score:
    """Score of one case over all its ranks."""
    score = Score()
    for labels, trace in files(shared, case):
        score_rank(score, labels, trace)
    return score


def table(shared: Path) -> str:
    """The accuracy table in Markdown, one line a case; what was not right follows."""
    lines = [
        "| case | events | right | unknown, truth offered | unknown | wrong | of these A/B | phase right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    notes = []
    for case in cases(shared):
        s = score_case(shared, case)
        phase = f"{s.phases_right}/{s.phases}" if s.phases else "–"
        lines.append(
            f"| {case} | {s.events} | {s.right} | {s.offered} | {s.unknown + s.unmatched} | {s.wrong} | {s.decisive} "
            f"| {phase} |"
        )
        notes += [f"{case}: {n} x {note}" for note, n in s.notes.most_common()]
    return "\n".join([*lines, "", *notes])
