"""Where the optional corpus and recordings are; a module of its own, since every folder may have a `conftest`."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def shared_dir() -> Path | None:
    """Folder with the shared corpus and recordings, or None in a clone that lacks it."""
    for candidate in (os.environ.get("TRACEKIT_SHARED"), ROOT.parent / "shared"):
        if candidate and (Path(candidate) / "corpus" / "MANIFEST.tsv").is_file():
            return Path(candidate)
    return None
