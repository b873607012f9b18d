"""Published and derived numbers, one named test each, through the public functions.

The rows are read from the shared reference; the functions of the `published_*` modules say how to compute them. A row
without a function is an error unless it is listed with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import published_sizes
import published_times
import published_volumes
import pytest
from theory_rows import CHECKS, Row, rows

if TYPE_CHECKING:
    from pathlib import Path

MODULES = (published_sizes, published_times, published_volumes)
ELSEWHERE = {
    "OVL-11": "a published measurement, nothing to compute",
    "STR-OPT-AR": "needs the replay of a trace: analysis, not theory",
    "STR-DP-AR": "needs the replay of a trace: analysis, not theory",
    "BUB-IMB-1": "a property, tested in test_bubbles.py and against the simulator",
    **{f"STR-OSDI-{i}": "a fact about published jobs, nothing to compute" for i in range(1, 7)},
}


@pytest.fixture(scope="module")
def table(shared: Path) -> dict[str, Row]:
    return rows(shared)


def test_every_row_has_a_check(table: dict[str, Row]) -> None:
    assert sorted(set(table) - set(CHECKS) - set(ELSEWHERE)) == []
    assert sorted((set(CHECKS) | set(ELSEWHERE)) - set(table)) == []


@pytest.mark.shared
@pytest.mark.parametrize("ident", sorted(CHECKS))
def test_row(ident: str, table: dict[str, Row]) -> None:
    CHECKS[ident](table[ident])
