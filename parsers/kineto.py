"""Kineto Chrome-trace JSON (torch.profiler of every release since 1.8) → `RankTrace`."""

from __future__ import annotations

import gc
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from tracekit.errors import BrokenInput, UnusableInput
from tracekit.model import RankTrace, TraceMeta
from tracekit.parsers import metadata
from tracekit.parsers.assemble import assemble
from tracekit.parsers.columns import Columns
from tracekit.parsers.decode import Batch, decode, needs_text
from tracekit.parsers.documents import BLOCK, Document, Documents
from tracekit.parsers.prefilter import Prefilter
from tracekit.parsers.repair import LADDER
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EPOCH_US = 1_000_000_000_000_000
"""Times above this many µs are absolute (2001 and later)."""


class KinetoReader:
    """Reads one file; `parse` returns one trace a document and process."""

    def __init__(self, path: Path, *, strict: bool = False, block: int = BLOCK) -> None:
        self.path, self.strict = path, strict
        self.source = Source(path)
        self.columns = Columns()
        self.prefilter = Prefilter()
        self.text_times = False
        self.documents = Documents(self.source, self._chunk, self._event, block)

    def parse(self) -> list[RankTrace]:
        """All traces of the file; raises UnusableInput when no event can be used."""
        traces: list[RankTrace] = []
        try:
            with _no_gc():
                for doc in self.documents:
                    traces += self._finish(doc, len(traces))
                    self.columns, self.prefilter = Columns(), Prefilter()
        finally:
            self.source.close()
        usable = [t for t in traces if len(t.host) or len(t.device)]
        if not usable:
            raise UnusableInput(self._nothing(traces))
        return usable

    def _nothing(self, traces: list[RankTrace]) -> str:
        counts = sum(sum(t.event_counts.values()) for t in traces)
        why = f" ({self.source.damage})" if self.source.damage else ""
        if not counts:
            return f"{self.path}: no usable event in traceEvents{why}; the recording may have failed or been cut: record again"
        return f"{self.path}: {counts} events, but only metadata and no timed work{why}; record again with CPU or CUDA activities on"

    # ------------------------------------------------------------- callbacks of the walk

    def _decode(self, data: bytes) -> Batch:
        batch = decode(data, text_times=self.text_times)
        if not self.text_times and needs_text(batch):
            self.text_times = True
            batch = decode(data, text_times=True)
        return batch

    def _chunk(self, doc: Document, data: bytes) -> None:
        kept, skipped = self.prefilter(data)
        batch = self._decode(kept)
        self.columns.counts.update(skipped)
        self.columns.add(batch)

    def _event(self, doc: Document, piece: bytes) -> bool:
        """One event alone, with repairs; False when none helps."""
        try:
            self.columns.add(self._decode(b"[" + piece + b"]"))
            return True
        except ValueError:
            pass
        for reason, repair in LADDER:
            piece = repair(piece)
            try:
                batch = self._decode(b"[" + piece + b"]")
            except ValueError:
                continue
            if self.strict:
                raise BrokenInput(self._refusal(reason, piece))
            self.columns.add(batch)
            self.columns.note("repaired", reason, 1, piece[:120].decode("utf-8", "replace"))
            return True
        return self._odd_args(piece)

    def _odd_args(self, piece: bytes) -> bool:
        """Valid JSON whose `args` is no object (third-party writers): keep the event without it."""
        try:
            event = msgspec.json.decode(piece)
        except (ValueError, RecursionError):
            return False
        if not isinstance(event, dict):
            return False
        event.pop("args", None)
        try:
            self.columns.add(self._decode(b"[" + json.dumps(event).encode() + b"]"))
        except ValueError:
            return False
        return True

    def _refusal(self, reason: str, piece: bytes) -> str:
        where = f"byte {self.documents.offset:,}, near {piece[:120].decode('utf-8', 'replace')!r}"
        return f"{self.path}: {reason} ({where}); read without --strict to salvage the rest"

    # ------------------------------------------------------------- end of a document

    def _finish(self, doc: Document, part: int) -> list[RankTrace]:
        before, after, bad = metadata.read_pairs(doc.head, doc.tail)
        self._account(doc, bad)
        c = self.columns
        meta = TraceMeta(
            path=str(self.path),
            part=part,
            file_bytes=self.source.file_bytes,
            json_bytes=self.source.read_bytes,
            compression=self.source.compression,
        )
        metadata.apply(meta, before, after)
        categories = {k[2:] for k in c.counts if k.startswith("X:")}
        meta.era = metadata.era(before, after, categories, self.text_times)
        return assemble(c, meta, self._base(meta))

    def _base(self, meta: TraceMeta) -> int:
        """Relative times get the file's base; times that are absolute already do not."""
        first = min((int(p[0]) for t in (self.columns.host, self.columns.device) for p in t["ts"] if len(p)), default=0)
        return 0 if first >= EPOCH_US * 1000 else (meta.base_ns or 0)

    def _account(self, doc: Document, bad_keys: list[str]) -> None:
        losses = list(doc.losses)
        if self.source.damage:
            losses.append(("lost", self.source.damage.split(" (")[0], self.source.damage))
        elif not doc.complete:
            losses.append(("lost", "the file ends inside traceEvents (truncated)", f"byte {self.source.read_bytes:,}"))
        losses += [("lost", "metadata value that is not valid JSON", k) for k in bad_keys]
        if losses and self.strict:
            _, reason, example = losses[0]
            raise BrokenInput(f"{self.path}: {reason} ({example[:160]}); read without --strict to salvage the rest")
        for severity, reason, example in losses:
            self.columns.note(severity, reason, 1, example[:200])
        if self.strict:
            for (severity, reason), n in self.columns.notes.items():
                if severity != "info":
                    raise BrokenInput(f"{self.path}: {reason} ({n} times); read without --strict to salvage the rest")


@contextmanager
def _no_gc() -> Iterator[None]:
    """The cycle collector costs half of the load: millions of small objects, none in a cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def parse(path: Path, *, strict: bool = False, block: int = BLOCK) -> list[RankTrace]:
    """Parse one Kineto file; `block` (bytes read at a time) only matters to tests."""
    return KinetoReader(path, strict=strict, block=block).parse()


PARSER = parse
