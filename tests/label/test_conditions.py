"""Conditions on what is absent, and the innermost scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from micro import Micro, group

from tracekit.label import label_rank, load_rules

if TYPE_CHECKING:
    from pathlib import Path


def strategy(tmp_path: Path, when: str, **how: object) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(
        f"[[rule]]\nid = 'mine'\nwhen = {{ {when} }}\nthen = {{ strategy = 'cp' }}\ntier = 'A'\nconfidence = 0.99\n"
    )
    micro = Micro({"groups": (group("7", "their_group", 0, 1),)}).call("allreduce", **how)
    [call] = label_rank(micro.b.build(), load_rules([path])).calls
    return call.label.strategy


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("frame = 'mine.py'", True),
        ("op = ['all_reduce'], no_frame = 'mine.py'", False),
        ("op = ['all_reduce'], no_frame = 'other.py'", True),
        ("op = ['all_reduce'], job_group = '^their_group$'", True),
        ("op = ['all_reduce'], no_job_group = '^their_group$'", False),
        ("op = ['all_reduce'], no_job_group = '^other$'", True),
        ("nearest_scope = '^inner$'", True),
        ("nearest_scope = '^outer$'", False),
        ("nearest_scope = '^c10d::'", False),
    ],
)
def test_conditions(tmp_path: Path, when: str, holds: bool) -> None:
    found = strategy(tmp_path, when, scopes=("outer", "inner"), frames=("mine.py(3): f",))
    assert (found == "cp") == holds
