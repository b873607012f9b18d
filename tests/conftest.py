"""Shared fixtures: where the optional corpus and recordings are."""

from __future__ import annotations

import compileall
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from shared_folder import ROOT, shared_dir

if TYPE_CHECKING:
    from pathlib import Path

settings.register_profile(
    "steady", derandomize=True, deadline=None
)  # a run tests what the run before it did; no timing
settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: commands that tests start need not, even where writing bytecode is switched off."""
    if not hasattr(config, "workerinput"):
        for folder in ("tracekit", "parsers", "rules"):
            compileall.compile_dir(ROOT / folder, quiet=2)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared folder; skips the test, visibly, where it is absent."""
    found = shared_dir()
    if found is None:
        pytest.skip("shared corpus not present (set TRACEKIT_SHARED to its folder)")
    return found
