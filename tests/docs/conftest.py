"""What tests of the documents share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """Loads a script of the repository, which is no part of the package, by its path in it."""

    def loaded(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded
