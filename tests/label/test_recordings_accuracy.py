"""Labels of real recordings against their truth, event by event (`pytest -s` prints the table)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import accuracy
import pytest
from conftest import shared_dir

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.shared


def _cases() -> list[str]:
    root = shared_dir()
    return accuracy.cases(root) if root else []


def test_the_table_of_all_recordings(shared: Path) -> None:
    text = accuracy.table(shared)
    print(f"\n{text}")
    assert all(f"| {case} |" in text for case in accuracy.cases(shared))


@pytest.mark.parametrize("case", _cases() or [None])
def test_every_event_is_found_and_no_decisive_label_is_wrong(shared: Path, case: str) -> None:
    score = accuracy.score_case(shared, case)
    assert score.unmatched == 0
    assert score.decisive == 0, score.notes
