"""Which frameworks made a trace: literal names of operators, scopes, kernels, frames, groups and metadata keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BREAK = "\n"


class FrameworkRule(Struct, frozen=True):
    """One [[framework]]: it is there when any of its literals is.

    names: in the name of an event; frames: in a Python frame; groups: in a group's description; metadata: in a key
    of the file's metadata. A literal found anywhere in the text counts; `^` before or `$` behind it ties it to the
    start or the end. implies: ids of frameworks that are there whenever this one is.
    """

    id: str
    title: str
    source: str
    names: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    implies: tuple[str, ...] = ()
    note: str = ""


def detect(
    rules: Sequence[FrameworkRule], event_names: Iterable[str], metadata: Iterable[str], descriptions: Iterable[str]
) -> dict[str, str]:
    """Frameworks of one rank: id → the literal that told it (or the framework that implies it)."""
    names = _text(event_names)
    texts = (names, names, _text(descriptions), _text(metadata))
    out: dict[str, str] = {}
    for rule in rules:
        literals = (rule.names, rule.frames, rule.groups, rule.metadata)
        hit = next((w for words, text in zip(literals, texts, strict=True) for w in words if _in(w, text)), None)
        if hit is not None:
            out.setdefault(rule.id, hit)
    _imply(rules, out)
    return out


def _imply(rules: Sequence[FrameworkRule], found: dict[str, str]) -> None:
    implied = {r.id: r.implies for r in rules}
    left = list(found)
    while left:
        one = left.pop()
        for other in implied.get(one, ()):
            if other not in found:
                found[other] = one
                left.append(other)


def _text(parts: Iterable[str]) -> str:
    return f"{_BREAK}{_BREAK.join(parts)}{_BREAK}"


def _in(literal: str, text: str) -> bool:
    word = literal
    if word.startswith("^"):
        word = _BREAK + word[1:]
    if word.endswith("$"):
        word = word[:-1] + _BREAK
    return word in text
