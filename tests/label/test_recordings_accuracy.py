"""Labels of real recordings against their truth, event by event (`pytest -s` prints the table).

Where each event carries its group (cases `tk…`) every strategy must be right. Where the groups are lost (plain gloo) 97 %
must be right of the events that are not honestly undecided: unknown, with the truth among the alternatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import accuracy
import pytest
from shared_folder import shared_dir

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared
GROUPS_RECORDED = "tk"


def _cases() -> list[str]:
    root = shared_dir()
    return accuracy.cases(root) if root else []


def test_the_table_of_all_recordings(shared: Path) -> None:
    text = accuracy.table(shared)
    print(f"\n{text}")
    assert all(f"| {case} |" in text for case in accuracy.cases(shared))


@pytest.mark.parametrize("case", _cases() or [None])
def test_accuracy(shared: Path, case: str) -> None:
    score = accuracy.score_case(shared, case)
    assert score.events > 0
    assert score.unmatched == 0
    assert score.decisive == 0, score.notes
    assert score.phase_ratio() >= 0.99, score.notes
    if case.startswith(GROUPS_RECORDED):
        assert score.right == score.events, score.notes
    else:
        assert score.strategy_ratio() >= 0.97, score.notes
        assert score.right >= 0.97 * score.events, score.notes
