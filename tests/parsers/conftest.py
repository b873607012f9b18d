"""Both ways to read Kineto's events: the compiled core and the pure Python path."""

from __future__ import annotations

import os

import pytest

from tracekit.parsers import core

MUST = os.environ.get(core.VARIABLE) == "1"


def choose(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Read by one way from now on; skips, visibly, where the core is not built (unless it must be: TRACEKIT_CORE=1)."""
    if way == "compiled" and not core.available() and not MUST:
        pytest.skip("the compiled core is not built")
    monkeypatch.setenv(core.VARIABLE, {"compiled": "1", "pure": "0"}[way])


@pytest.fixture(params=["compiled", "pure"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs once with each decode stage."""
    choose(monkeypatch, request.param)
    return str(request.param)


@pytest.fixture
def pure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the pure Python path."""
    choose(monkeypatch, "pure")
