"""The shipped rule files, read fast: `tomllib` takes longer for them than everything else that a small run does.

They are written in a small part of TOML, which turns into JSON by exchanging a few tokens. Text that uses more of TOML
becomes no JSON and is left to `tomllib`; a test compares both for every shipped file.
"""

from __future__ import annotations

import re
from functools import cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import tracekit.rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TOKEN = re.compile(
    r"""(?P<same>"(?:[^"\\\n]|\\["\\bfnrt])*")|'(?P<literal>[^'\n]*)'|(?P<comment>\#[^\n]*)"""
    r"""|\n\[\[(?P<table>\w+)\]\]|\n(?P<key>\w+) =|(?P<inner>[A-Za-z_]\w*) =|(?P<trailing>,(?=\s*[\]}]))"""
)
_TABLE = "[["
"""Key that holds the name of its table in each entry; no key of TOML is spelled like that."""


def _exchanged(found: re.Match[str]) -> str:
    kind, text = found.lastgroup, found[0]
    if kind == "same":
        return text
    if kind == "key":
        return f',"{text[1:-2]}":'
    if kind == "inner":
        return f'"{text[:-2]}":'
    if kind == "literal":
        return encode_basestring(text[1:-1])
    return f'}},{{"{_TABLE}":"{text[3:-2]}"' if kind == "table" else ""


def _as_json(text: str) -> Iterator[str]:
    """Parts of the JSON. Most lines are a key and one plain string, and need no look at their tokens."""
    rest: list[str] = []
    for line in text.split("\n"):
        key, equals, value = line.partition(" = ")
        if (
            equals
            and value[:1] == value[-1:] == '"'
            and value.count('"') == 2
            and "\\" not in value
            and key.isidentifier()
        ):
            if rest:
                yield _TOKEN.sub(_exchanged, "".join(rest))
                rest.clear()
            yield f',"{key}":{value}'
        else:
            rest.append(f"\n{line}")
    yield _TOKEN.sub(_exchanged, "".join(rest))


def tables_of(text: str) -> dict[str, Any] | None:
    """The tables of a rule file, as `tomllib.loads` gives them; None for text that has to be left to that."""
    try:
        entries = msgspec.json.decode(f'[{{"{_TABLE}":""{"".join(_as_json(text))}}}]')
    except msgspec.DecodeError:
        return None
    out: dict[str, Any] = {}
    for entry in entries:
        table = entry.pop(_TABLE)
        if table:
            out.setdefault(table, []).append(entry)
        else:
            out |= entry
    return out


@cache
def texts() -> Mapping[str, str]:
    """Text of each shipped rule file, by its name."""
    folder = Path(tracekit.rules.__file__).parent
    return {p.name: p.read_text("utf-8") for p in sorted(folder.glob("*.toml"))}
