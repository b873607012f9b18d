"""Cut a byte stream into documents and chunks of whole events.

A document is `{… "traceEvents": [ events ] …}` (or a bare list of events). Events come in chunks of
whole events, cut at the separator learnt from the first two. A cut that is not a boundary leaves the
chunk unbalanced, so its strict decode fails: a wrong cut is always loud, and `Documents._settle`
then finds the true boundaries one event at a time.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tracekit.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.parsers.source import Source

BLOCK = 1 << 20
MAX_EVENT = 64 << 20
"""Bytes of one event, of a header or of a tail beyond which a file is refused."""

MAX_METADATA = 4 << 20
"""Bytes of metadata whose nesting is followed; longer or damaged metadata is read key by key."""
_NESTING_OF_EVENTS = 2  # the document's brace and the bracket of the events
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEY_REACH = 256
"""How far a key may reach over the end of a block (white space included)."""
_SEPARATOR = re.compile(rb'\}(\s*,)\s*\{\s*"')
_NEXT_EVENT = re.compile(rb'\{\s{0,64}"(?:ph|name|cat|args|pid|tid|ts|dur|id|s|bp)"\s{0,8}:')
_STRAY_EVENT = re.compile(rb'\{\s*"ph"\s*:\s*"')
_CLOSING = re.compile(rb"\}\s*\]")
_RESUMED = "events go on after the end of traceEvents"
_SKIP = re.compile(r"[ \t\r\n,]*")
_REOPENED = re.compile(r'\]\s{0,64},?\s{0,64}\{\s{0,64}"ph"')
_SCANNER = json.JSONDecoder(strict=True)
_WINDOWS = (4 << 10, 64 << 10, 1 << 20)
_NEAR = 64
"""An error this close to the end of a window may come of the window."""
MAX_DOCUMENTS = 4096


class Document(Struct):
    """Bytes around the events of one document; `complete` = the end of its events was seen."""

    number: int
    head: bytes = b""
    tail: bytes = b""
    complete: bool = False
    resumed: bool = False
    losses: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)

    def lose(self, severity: str, reason: str, example: str) -> None:
        """Count something lost or repaired, and keep the first example."""
        self.losses[severity, reason] += 1
        self.examples.setdefault((severity, reason), example)


class Documents:
    """Walks a `Source`. `on_chunk(doc, bytes)` must raise ValueError when a chunk is not valid;
    `on_event(doc, bytes)` returns one event, repaired where needed, or None when it is beyond repair.
    """

    def __init__(
        self,
        source: Source,
        on_chunk: Callable[[Document, bytes], None],
        on_event: Callable[[Document, bytes], bytes | None],
        block: int = BLOCK,
    ) -> None:
        self.source, self.on_chunk, self.on_event, self.block = source, on_chunk, on_event, block
        self.buffer = b""
        self.eof = False
        self.separator = b""
        self.lead = 1  # bytes of the separator that belong to the event before, and the comma
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
            doc = Document(number)
            if not self._head(doc):
                return
            self._events(doc)
            self._tail(doc)
            yield doc
            number += 1
            if number > MAX_DOCUMENTS:
                raise LimitExceeded(f"{self.source.path}: more than {MAX_DOCUMENTS} documents; split the file")

    # ---------------------------------------------------------------- head

    def _head(self, doc: Document) -> bool:
        scanned = 0
        while True:
            found = self._events_key() if _EVENTS_KEY.search(self.buffer, max(0, scanned - _KEY_REACH)) else 0
            end = found or self._list_start(doc)
            if end:
                doc.head = self.buffer[:end]
                self._drop(end)
                return True
            scanned = len(self.buffer)
            self._guard("the part before traceEvents")
            if not self._fill(scanned):
                doc.head = self.buffer
                return False

    def _events_key(self) -> int:
        """End of the first `"traceEvents": [` that is a key of the document itself, not of a value in it.

        In a damaged header nesting cannot be told: there the first one counts.
        """
        first = 0
        while True:
            for found in _EVENTS_KEY.finditer(self.buffer):
                first = first or found.end()
                if _nesting(self.buffer[: found.end()]) == _NESTING_OF_EVENTS:
                    return found.end()
            if len(self.buffer) > MAX_METADATA or not self._fill(len(self.buffer)):
                return first

    def _list_start(self, doc: Document) -> int:
        """End of the opening bracket of a bare list of events, or 0."""
        start = self.buffer[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
        return self.buffer.index(b"[") + 1 if doc.number == 0 and start[:1] == b"[" else 0

    # ---------------------------------------------------------------- events

    def _events(self, doc: Document) -> None:
        if not self._learn(doc):
            return
        while True:
            if len(self.buffer) < self.block and not self.eof and self._block(doc):
                continue
            cut = self.buffer.rfind(self.separator)
            if cut >= 0:
                if self._chunk(doc, self.buffer[: cut + 1]):
                    self._drop(cut + self.lead)
                    continue
            elif not self.eof:
                self._guard("one event")
                self._fill(len(self.buffer))
                continue
            stop = len(self.buffer) if self.eof else cut + 1
            if self._settle(doc, stop, last=self.eof):
                return

    def _chunk(self, doc: Document, data: bytes) -> bool:
        try:
            self.on_chunk(doc, data)
        except ValueError:
            return False
        return True

    def _block(self, doc: Document) -> bool:
        """Take one more block up to its last separator; False when that is not to be had: then it joins the buffer.

        The usual case, and the one that copies least.
        """
        got = self.source.read(self.block)
        self.eof = not got
        cut = got.rfind(self.separator)
        if cut >= 0 and self._chunk(doc, b"".join((self.buffer, memoryview(got)[: cut + 1]))):
            self.offset += len(self.buffer) + cut + self.lead
            self.buffer = got[cut + self.lead :]
            return True
        self.buffer += got
        return False

    def _learn(self, doc: Document) -> bool:
        """Find the layout's separator; False when the array is empty."""
        while len(self.buffer) < 1 << 16 and self._fill():
            pass
        at = len(self.buffer) - len(self.buffer.lstrip(b" \t\r\n,"))
        if self.buffer[at : at + 1] == b"]":
            self._drop(at + 1)
            doc.complete = True
            return False
        found = _SEPARATOR.search(self.buffer)
        end = _end_of_object(self.buffer[at : at + (1 << 20)].decode("latin-1"), 0)
        if end is not None:
            found = _SEPARATOR.match(self.buffer, at + end - 1) or found
        # Without a second event any separator will do: the end of the stream settles it.
        self.separator = found[0] if found else b'},{"'
        self.lead = 1 + len(found[1] if found else b",")
        return True

    def _settle(self, doc: Document, stop: int, *, last: bool) -> bool:
        """Take the events in buffer[:stop] one at a time. True when the array's end was met."""
        text = self.buffer[:stop].decode("latin-1")
        whole: list[tuple[int, bytes]] = []
        at, done = 0, False
        while not done and (at := _skip(text, at)) < stop:
            if text[at] == "]":
                at += 1
                if doc.resumed and _REOPENED.match(text, at - 1):
                    doc.lose("repaired", _RESUMED, f"byte {self.offset + at:,}")
                    continue
                doc.complete = done = True
                break
            end = _end_of_object(text, at)
            follow = _next_event(self.buffer, at + 1, stop) if end is None else None
            if end is not None:
                whole.append((at, self.buffer[at:end]))
            elif follow is not None:
                end = self._damaged(doc, at, follow, whole)
            elif last:
                end, done = self._last_piece(doc, at, stop, whole), True
            else:
                break  # perhaps only cut short: look again with more bytes
            at = end
        self._take(doc, whole)
        if at == 0:
            self._guard("one event")
            self._fill(len(self.buffer))
        self._drop(at)
        return done or (last and not self.buffer)

    def _take(self, doc: Document, events: list[tuple[int, bytes]]) -> None:
        """Hand on events that are balanced; if the decoder finds fault, repair them singly."""
        if not events:
            return
        try:
            self.on_chunk(doc, b",".join([piece for _, piece in events]))
        except ValueError:
            sound = []
            for at, piece in events:
                repaired = self.on_event(doc, piece)
                if repaired is None:
                    self._lose(doc, "event of an unexpected shape", at, piece)
                else:
                    sound.append(repaired)
            if sound:
                self.on_chunk(doc, b",".join(sound))

    def _damaged(self, doc: Document, at: int, follow: int, whole: list[tuple[int, bytes]]) -> int:
        """One damaged event ends before the next one starts: with its brace, or cut off."""
        piece = self.buffer[at:follow].rstrip(b" \t\r\n,")
        if not piece.endswith(b"}"):
            self._lose(doc, "event cut off before the next one starts", at, piece)
        elif (repaired := self.on_event(doc, piece)) is None:
            self._lose(doc, "event that is not valid JSON", at, piece)
        else:
            whole.append((at, repaired))
        return follow

    def _last_piece(self, doc: Document, at: int, stop: int, whole: list[tuple[int, bytes]]) -> int:
        """The rest of the stream starts with something that is no event: repair, else lose it."""
        closing = _CLOSING.search(self.buffer, at, stop)
        if closing and (repaired := self.on_event(doc, self.buffer[at : closing.start() + 1])) is not None:
            whole.append((at, repaired))
            doc.complete = True
            return closing.end()
        self._lose(doc, "event cut off at the end of the file", at, self.buffer[at:stop])
        return stop

    def _lose(self, doc: Document, reason: str, at: int, piece: bytes) -> None:
        doc.lose("lost", reason, f"byte {self.offset + at:,}: {piece[:120].decode('utf-8', 'replace')}")

    # ---------------------------------------------------------------- tail

    def _tail(self, doc: Document) -> None:
        """Read to the end of the document; resume if events go on (interleaved writers)."""
        parts: list[bytes] = []
        end = self._metadata_end() if doc.complete and doc.head[:1] == b"{" else 0
        if end:
            parts.append(self.buffer[:end])
            self._drop(end)
        scanned, kept = 0, end
        while True:
            again = _EVENTS_KEY.search(self.buffer, scanned)
            stray = _STRAY_EVENT.search(self.buffer, scanned)
            if again and (not stray or again.start() < stray.start()):
                self._next_document(doc, again.start(), parts, closed=bool(end))
                return
            if stray:
                where = f"byte {self.offset + stray.start():,}"
                doc.lose("repaired", _RESUMED, where)
                doc.resumed = True
                parts.append(self.buffer[: stray.start()])
                kept += stray.start()
                scanned = 0
                self._drop(stray.start())
                self._events(doc)
            else:
                scanned = max(0, len(self.buffer) - _KEY_REACH)
                if not self._fill(len(self.buffer)):
                    doc.tail = b"".join([*parts, self.buffer])
                    self._drop(len(self.buffer))
                    return
            if kept + len(self.buffer) > MAX_EVENT:
                raise LimitExceeded(f"{self.source.path}: more than {MAX_EVENT >> 20} MiB after traceEvents")

    def _metadata_end(self) -> int:
        """End of the object that the document is, if what follows its events is valid JSON; else 0.

        Whatever stands in there is metadata, even if it looks like events.
        """
        while True:
            text = self.buffer.decode("latin-1")
            start = len(text) - len(text.lstrip(" \t\r\n,"))
            if text[start : start + 1] == "}":
                return start + 1
            end = _end_of_object("{" + text[start:], 0) if text[start : start + 1] == '"' else None
            if end is not None:
                return start + end - 1
            if text[start : start + 1] not in {"", '"'} or len(text) > MAX_METADATA or not self._fill(len(text)):
                return 0

    def _next_document(self, doc: Document, key: int, parts: list[bytes], *, closed: bool) -> None:
        gap = 0 if closed else self.buffer.rfind(b"}", 0, key)
        new = self.buffer.find(b"{", max(gap, 0), key)
        new = new if new >= 0 else key
        doc.tail = b"".join([*parts, self.buffer[:new]])
        self._drop(new)
        doc.lose("repaired", "a second document follows in the same file", f"byte {self.offset:,}")


def _next_event(data: bytes, start: int, stop: int) -> int | None:
    """Start of the next object that looks like an event and is no value of a key."""
    for found in _NEXT_EVENT.finditer(data, start, stop):
        if not data[max(0, found.start() - 64) : found.start()].rstrip().endswith(b":"):
            return found.start()
    return None


def _nesting(head: bytes) -> int:
    """Open brackets and braces at the end of `head`, strings left out."""
    bare = _STRING.sub(b"", head)
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


def _skip(text: str, at: int) -> int:
    found = _SKIP.match(text, at)
    return found.end() if found else at


def _end_of_object(text: str, at: int) -> int | None:
    """End of the JSON object that starts there, or None (text in latin-1 keeps byte positions).

    Looks through growing windows: an error costs time in proportion to its position in the text.
    """
    if text[at : at + 1] != "{":
        return None
    for size in (*_WINDOWS, len(text)):
        window = text[at : at + size]
        try:
            return at + int(_SCANNER.raw_decode(window)[1])
        except json.JSONDecodeError as e:
            cut = e.pos + _NEAR >= len(window) or e.msg.startswith("Unterminated string")
            if not cut or at + size >= len(text):
                return None
        except (ValueError, RecursionError):
            return None
    return None
