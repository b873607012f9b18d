"""Shared fixtures: where the optional corpus and recordings are."""

from __future__ import annotations

import compileall
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: commands that tests start need not, even where writing bytecode is switched off."""
    if not hasattr(config, "workerinput"):
        for folder in ("tracekit", "parsers", "rules"):
            compileall.compile_dir(ROOT / folder, quiet=2)


def shared_dir() -> Path | None:
    """Folder with the shared corpus and recordings, or None in a clone that lacks it."""
    for candidate in (os.environ.get("TRACEKIT_SHARED"), ROOT.parent / "shared"):
        if candidate and (Path(candidate) / "corpus" / "MANIFEST.tsv").is_file():
            return Path(candidate)
    return None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared folder; skips the test, visibly, where it is absent."""
    found = shared_dir()
    if found is None:
        pytest.skip("shared corpus not present (set TRACEKIT_SHARED to its folder)")
    return found
