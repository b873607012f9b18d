"""Cut a byte stream into documents and chunks of whole events.

A document is `{… "traceEvents": [ events ] …}` (or a bare list of events). Events come in chunks:
`[` + whole events + `]`, cut at the separator learnt from the first two events. A cut that is not a
boundary leaves the chunk unbalanced, so its strict decode fails: a wrong cut is always loud, and
`Documents.settle` then finds the true boundaries one event at a time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.errors import BrokenInput, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.parsers.source import Source

BLOCK = 384 << 10
MAX_EVENT = 64 << 20
"""Bytes of one event, of a header or of a tail beyond which a file is refused."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SEPARATOR = re.compile(rb'\}(\s*,\s*)\{\s*"')
_GENERIC = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|args|pid|tid|ts|dur|id|s|bp)")')
_STRAY_EVENT = re.compile(rb'\{\s*"ph"\s*:')
_SCANNER = json.JSONDecoder(strict=True)


@dataclass(slots=True)
class Document:
    """Bytes around the events of one document; `complete` = its end was seen."""

    number: int
    head: bytes = b""
    tail: bytes = b""
    offset: int = 0
    complete: bool = False
    losses: list[tuple[str, str, str]] = field(default_factory=list)


class Documents:
    """Walks a `Source`. `on_chunk(doc, bytes)` must raise ValueError when a chunk is not valid;
    `on_event(doc, bytes)` takes one whole event and returns False when it is beyond repair.
    """

    def __init__(
        self,
        source: Source,
        on_chunk: Callable[[Document, bytes], None],
        on_event: Callable[[Document, bytes], bool],
        block: int = BLOCK,
    ) -> None:
        self.source, self.on_chunk, self.on_event, self.block = source, on_chunk, on_event, block
        self.buffer = b""
        self.eof = False
        self.separator = b""
        self.start = b""
        self.offset = 0  # position of buffer[0] in the decompressed stream

    def _fill(self, at_least: int = 1) -> bool:
        got = self.source.read(max(self.block, at_least))
        if not got:
            self.eof = True
            return False
        self.buffer += got
        return True

    def _drop(self, n: int) -> None:
        self.buffer = self.buffer[n:]
        self.offset += n

    def _guard(self, what: str) -> None:
        if len(self.buffer) > MAX_EVENT:
            raise LimitExceeded(
                f"{self.source.path}: {what} is longer than {MAX_EVENT >> 20} MiB (byte {self.offset:,}); "
                "expected events separated by commas"
            )

    def __iter__(self) -> Iterator[Document]:
        """Yield each document when its tail has been read."""
        number = 0
        while True:
            doc = Document(number, offset=self.offset)
            if not self._head(doc):
                return
            self._events(doc)
            self._tail(doc)
            yield doc
            number += 1

    # ---------------------------------------------------------------- head

    def _head(self, doc: Document) -> bool:
        scanned = 0
        while True:
            found = _EVENTS_KEY.search(self.buffer, max(0, scanned - 64))
            if found:
                doc.head = self.buffer[: found.end()]
                self._drop(found.end())
                return True
            if self.buffer.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and doc.number == 0:
                start = self.buffer.index(b"[") + 1
                doc.head = self.buffer[:start]
                self._drop(start)
                return True
            scanned = len(self.buffer)
            self._guard("the part before traceEvents")
            if not self._fill(scanned):
                if doc.number == 0:
                    doc.head = self.buffer
                return False

    # ---------------------------------------------------------------- events

    def _events(self, doc: Document) -> None:
        if not self._learn(doc):
            return
        while True:
            if len(self.buffer) < self.block and not self.eof:
                self._fill(self.block)
            cut = -1 if self.eof else self.buffer.rfind(self.separator)
            if cut < 0:
                if not self.eof:
                    self._guard("one event")
                    self._fill(len(self.buffer))
                    continue
                if self.settle(doc, len(self.buffer), last=True):
                    return
                continue
            try:
                self.on_chunk(doc, b"[" + self.buffer[: cut + 1] + b"]")
            except ValueError:
                if self.settle(doc, cut + 1, last=False):
                    return
                continue
            self._drop(cut + len(self.start))

    def _learn(self, doc: Document) -> bool:
        """Find the layout's separator; False when the array is empty."""
        while len(self.buffer) < 1 << 16 and self._fill():
            pass
        at = len(self.buffer) - len(self.buffer.lstrip(b" \t\r\n,"))
        if self.buffer[at : at + 1] == b"]":
            self._drop(at + 1)
            doc.complete = True
            return False
        self._drop(at)
        found = _SEPARATOR.search(self.buffer)
        end = self._object_end(0, len(self.buffer))
        if end is not None:
            true = _SEPARATOR.match(self.buffer, end - 1)
            found = true or found
        # Without a second event any separator will do: the end of the stream settles it.
        self.separator = found[0] if found else b'},{"'
        self.start = b"}" + (found[1] if found else b",")
        return True

    def _object_end(self, start: int, stop: int) -> int | None:
        """End of the JSON object that starts at `start`, or None (latin-1 keeps byte positions)."""
        try:
            return int(_SCANNER.raw_decode(self.buffer[start:stop].decode("latin-1"))[1]) + start
        except (ValueError, RecursionError):
            return None

    def settle(self, doc: Document, stop: int, *, last: bool) -> bool:
        """Take the events in buffer[:stop] one at a time. True when the array's end was met."""
        text = self.buffer[:stop].decode("latin-1")
        at, kept = 0, 0
        while at < stop:
            while at < stop and text[at] in " \t\r\n,":
                at += 1
            if at >= stop:
                break
            if text[at] == "]":
                self._drop(at + 1)
                doc.complete = True
                return True
            end = _end_of_object(text, at)
            if end is not None and self.on_event(doc, self.buffer[at:end]):
                at, kept = end, kept + 1
                continue
            follow = _GENERIC.search(self.buffer, at, stop) if end is None else None
            if end is not None:
                self._lose(doc, "event of an unexpected shape", at, end)
                at = end
            elif follow:
                piece_end = follow.start() + 1
                if not self.on_event(doc, self.buffer[at:piece_end]):
                    self._lose(doc, "event that is not valid JSON", at, piece_end)
                at = follow.end()
            elif not last and (kept or stop < MAX_EVENT):
                break  # perhaps only cut short: look again with more bytes
            else:
                return self._last_piece(doc, at, stop)
        if at == 0 and not last:
            self._guard("one event")
            self._fill(len(self.buffer))
        self._drop(at)
        return last and self.eof and not self.buffer.strip(b" \t\r\n,")

    def _last_piece(self, doc: Document, at: int, stop: int) -> bool:
        """The rest of the stream starts with something that is no event: repair, else lose it."""
        closing = re.compile(rb"\}\s*\]").search(self.buffer, at, stop)
        if closing and self.on_event(doc, self.buffer[at : closing.start() + 1]):
            self._drop(closing.end())
            doc.complete = True
            return True
        self._lose(doc, "event cut off at the end of the file", at, min(stop, at + 200))
        self._drop(stop)
        return True

    def _lose(self, doc: Document, reason: str, at: int, end: int) -> None:
        example = self.buffer[at : min(end, at + 120)].decode("utf-8", "replace")
        doc.losses.append(("lost", reason, f"byte {self.offset + at}: {example}"))

    # ---------------------------------------------------------------- tail

    def _tail(self, doc: Document) -> None:
        """Read to the end of the document; resume if events go on (interleaved writers)."""
        while True:
            again = _EVENTS_KEY.search(self.buffer)
            stray = _STRAY_EVENT.search(self.buffer)
            if again and (not stray or again.start() < stray.start()):
                gap = self.buffer.rfind(b"}", 0, again.start())
                new = self.buffer.find(b"{", max(gap, 0), again.start())
                new = new if new >= 0 else again.start()
                doc.tail += self.buffer[:new]
                self._drop(new)
                doc.losses.append(("repaired", "a second document follows in the same file", f"byte {self.offset}"))
                return
            if stray:
                doc.losses.append(("repaired", "events go on after the end of traceEvents", f"byte {self.offset + stray.start()}"))
                doc.tail += self.buffer[: stray.start()]
                self._drop(stray.start())
                self._events(doc)
                continue
            if not self._fill():
                doc.tail += self.buffer
                self._drop(len(self.buffer))
                return
            if len(doc.tail) + len(self.buffer) > MAX_EVENT:
                raise LimitExceeded(f"{self.source.path}: more than {MAX_EVENT >> 20} MiB after traceEvents")


def _end_of_object(text: str, at: int) -> int | None:
    if text[at] != "{":
        return None
    try:
        return int(_SCANNER.raw_decode(text, at)[1])
    except (ValueError, RecursionError):
        return None


def refuse(path: object, loss: tuple[str, str, str]) -> BrokenInput:
    """The error of strict reading for one loss or repair."""
    _, reason, example = loss
    return BrokenInput(f"{path}: {reason} ({example[:160]}); read without --strict to salvage the rest")
