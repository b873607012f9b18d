"""The shipped rule files: their text, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import tracekit.rules

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def texts() -> Mapping[str, str]:
    """Text of each shipped rule file, by its name."""
    folder = Path(tracekit.rules.__file__).parent
    return {p.name: p.read_text("utf-8") for p in sorted(folder.glob("*.toml"))}
