"""Cells of the reports: numbers and foreign text as text, and tables of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_KERNEL = re.compile(r"(?:void )?([A-Za-z_][\w:]*)(?:<[^()]*>)?\([^()]*\)$")
"""A demangled name: what it returns, template arguments and parameters are the same for many, and fill lines."""


@dataclass(slots=True)
class Grid:
    """One table of the report; numbers are already text."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def clean(text: object) -> str:
    """Text from a trace without control and direction characters, and without halves of a character."""
    return _CONTROL.sub("?", str(text))


def plain_name(name: str) -> str:
    """The name of a kernel without its types, as it stands in its source; any other text as it is."""
    found = _KERNEL.match(name)
    return found[1] if found else name


def ms(ns: float | None) -> str:
    """ns → ms with a precision that suits its size; "–" when unknown."""
    if ns is None:
        return "–"
    value = ns / 1e6
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def percent(part: float, whole: float) -> str:
    """Share in per cent, or "–" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "–"
