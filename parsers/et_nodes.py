"""Nodes of a PyTorch execution trace, one after the other: what they list of tensors is never held all at once.

torch writes the names of operators and the text of arguments as they are, so a quote in one breaks the file
(pytorch#126703); each node is therefore cut out by its beginning and decoded on its own.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import BrokenInput, LimitExceeded
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK = 1 << 20
MAX_NODE = 16 << 20
MAX_NODES = 5_000_000
_WHOLE = 64 << 20
_NONE = msgspec.Raw(b"null")
_START = re.compile(
    rb'\{\s*(?:"id"\s*:\s*\d+\s*,\s*"name"\s*:|"name"\s*:\s*"(?:[^"\\]|\\.){0,65536}"\s*,\s*"id"\s*:)', re.DOTALL
)
"""A node begins with its id and name (schema 1.0.2 and newer) or its name and id (1.0.1); attributes have no id."""
_BARE = re.compile(r"(?<=[\[,:\s])[-+]?(?:nan|inf(?:inity)?)(?=\s*[,\]}])", re.IGNORECASE)
_FIX = "read without --strict to leave it out"


class Node(msgspec.Struct, gc=False):
    """One node, over all schemas: `parent` (or `ctrl_deps`) is the id of the enclosing one."""

    id: int
    name: str
    ctrl_deps: Any = None
    parent: Any = None
    inputs: msgspec.Raw = _NONE
    outputs: msgspec.Raw = _NONE
    input_shapes: msgspec.Raw = _NONE
    input_types: msgspec.Raw = _NONE
    output_shapes: msgspec.Raw = _NONE
    attrs: msgspec.Raw = _NONE
    rf_id: Any = None
    tid: Any = None
    op_schema: Any = None
    ts: Any = None

    def above(self) -> int:
        """Id of the enclosing node, 0 for none."""
        found = self.ctrl_deps if self.parent is None else self.parent
        return found if type(found) is int and found != self.id else 0

    def facts(self) -> dict[str, Any]:
        """Attributes by name; those of schema 1.0.1 stand in the node itself."""
        out: dict[str, Any] = {"rf_id": self.rf_id, "tid": self.tid, "op_schema": self.op_schema}
        listed = _decoded(self.attrs)
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and isinstance(one.get("name"), str):
                out[one["name"]] = one.get("value")
        return out

    def arguments(self) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """(values, shapes, types of the inputs; shapes of the outputs); missing ones are empty."""
        given, made = _decoded(self.inputs), _decoded(self.outputs)
        if isinstance(given, dict):
            told = given.get("values"), given.get("shapes"), given.get("types")
            shaped = made.get("shapes") if isinstance(made, dict) else None
        else:
            told = given, _decoded(self.input_shapes), _decoded(self.input_types)
            shaped = _decoded(self.output_shapes)
        values, shapes, types = (t if isinstance(t, list) else [] for t in told)
        return values, shapes, types, shaped if isinstance(shaped, list) else []


class _Whole(msgspec.Struct):
    nodes: list[Node] = msgspec.field(default_factory=list)


_node = msgspec.json.Decoder(Node)


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Nodes:
    """Iterate over the nodes of one file. `head`: what stands before them; `lost`, `repaired`: nodes, with one
    `example` each; `closed`: the list of nodes has its end.
    """

    def __init__(self, path: Path, *, strict: bool = False) -> None:
        self.path, self.strict = path, strict
        self.source = Source(path)
        self.head = b""
        self.lost = self.repaired = self.total = 0
        self.examples: dict[str, str] = {}
        self.closed = False

    def __iter__(self) -> Iterator[Node]:
        try:
            for piece in self._pieces():
                yield from self._of(piece)
            if not self.total and not self.lost:
                yield from self._other_order()
        finally:
            self.source.close()

    def _pieces(self) -> Iterator[bytes]:
        """Each node's bytes, with the comma behind it (the last: with the end of the file)."""
        rest, found = b"", False
        while data := self.source.read(BLOCK):
            data = rest + data
            starts = [m.start() for m in _START.finditer(data)]
            if starts and not found:
                self.head, found = data[: min(starts[0], BLOCK)], True
            for at, end in pairwise(starts):
                yield data[at:end]
            rest = data[starts[-1] :] if starts else data
            if len(rest) > (MAX_NODE if found else _WHOLE):
                self._lose("node of more than 16 MiB", rest[:80])
                rest = rest[-80:]  # a node may begin in its last bytes
        if found:
            yield rest
        else:
            self.head = rest

    def _of(self, piece: bytes) -> list[Node]:
        self.total += 1
        if self.total > MAX_NODES:
            raise LimitExceeded(f"{self.path}: more than {MAX_NODES:,} nodes; record fewer steps")
        try:
            return [_node.decode(piece.rstrip(b", \r\n\t"))]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._mended(piece)

    def _mended(self, piece: bytes) -> list[Node]:
        """The last node, one before damage, one with numbers that JSON has not (torch writes inf and nan bare), and
        what ET+ puts between nodes: a profiler's kernels, whose keys come in another order.
        """
        text = piece.decode("utf-8", "replace")
        out = []
        while text := text.lstrip(", \r\n\t"):
            if text.startswith("]"):
                self.closed = True
                break
            value, end = _first_value(text)
            if value is None and (end := (again := _first_value(mended := _BARE.sub("null", text)))[1]):
                text, value = mended, again[0]
                self._note("repaired", "number that JSON has not, read as null", piece[:100])
            node = _as_node(value)
            if node is not None:
                out.append(node)
            elif value is None or "ph" not in value:
                self._lose("node that is not whole", text[:100].encode())
            if value is None:
                break
            text = text[end:]
        return out

    def _lose(self, reason: str, example: bytes) -> None:
        self.lost += 1
        self._note("lost", reason, example)

    def _note(self, kind: str, reason: str, example: bytes) -> None:
        shown = example[:100].decode("utf-8", "replace")
        if self.strict:
            raise BrokenInput(f"{self.path}: {reason}, near byte {self.source.read_bytes:,} ({shown!r}); {_FIX}")
        if kind == "repaired":
            self.repaired += 1
        self.examples.setdefault(kind, f"{reason}: {shown}")

    def _other_order(self) -> Iterator[Node]:
        """A file written anew, with the keys of its nodes in another order: read at once, if it is small."""
        try:
            nodes = msgspec.json.decode(self.head, type=_Whole).nodes
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self.closed, self.total = True, len(nodes)
        yield from nodes


def _as_node(value: Any) -> Node | None:
    try:
        return _node.decode(msgspec.json.encode(value)) if isinstance(value, dict) else None
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError, OverflowError):
        return None


def _first_value(text: str) -> tuple[Any, int]:
    """(the object that a text begins with, its end); (None, 0) for none."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None, 0
    return (value, end) if isinstance(value, dict) else (None, 0)
