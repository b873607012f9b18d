"""Where in the runs a reader is: run → step → rank → call, a strategy as filter. The page's address says it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlencode

UNKNOWN = "unknown"
"""How an address names the recording whose rank no source tells."""
_BELOW = {"run": ("step", "rank", "call", "page"), "step": ("call", "page"), "rank": ("call", "page"),
          "strategy": ("call", "page"), "page": ("call",), "call": ()}  # fmt: skip
"""What a choice takes back: what was chosen within the one before."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place; None = not chosen. page: of the longest table, from 0."""

    run: str | None = None
    step: int | None = None
    rank: str | None = None
    strategy: str | None = None
    call: int | None = None
    page: int = 0

    @classmethod
    def of(cls, search: str) -> Where:
        """Read an address's query (with or without its '?'); what makes no sense is not chosen."""
        try:
            found = {k: v[-1] for k, v in parse_qs(search.removeprefix("?"), max_num_fields=50).items()}
        except ValueError:
            return cls()
        rank = found.get("rank")
        return cls(
            run=found.get("run"), step=_number(found.get("step")), strategy=found.get("strategy"),
            rank=rank if rank == UNKNOWN or _number(rank) is not None else None,
            call=_number(found.get("call")), page=max(_number(found.get("page")) or 0, 0),
        )  # fmt: skip

    def to(self, **changes: Any) -> Where:
        """The place after a choice; what was chosen within the former one is taken back."""
        below: dict[str, Any] = {
            name: 0 if name == "page" else None for c in changes for name in _BELOW[c] if name not in changes
        }
        return replace(self, **below, **changes)

    @property
    def query(self) -> str:
        """The address's query, '' for the list of runs."""
        chosen = {k: v for k, v in asdict(self).items() if v is not None and (k != "page" or v)}
        return f"?{urlencode(chosen)}" if chosen else ""

    @property
    def ranks(self) -> list[int | None] | None:
        """The chosen rank as a filter of tables; None = all."""
        return None if self.rank is None else [None if self.rank == UNKNOWN else int(self.rank)]

    @property
    def steps(self) -> list[int] | None:
        """The chosen step as a filter of tables; None = all."""
        return None if self.step is None else [self.step]


def rank_text(rank: int | None) -> str:
    """A rank as an address names it."""
    return UNKNOWN if rank is None else str(rank)


def _number(text: str | None) -> int | None:
    try:
        value = int(text) if text and len(text) < 12 else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 2**31 else None
