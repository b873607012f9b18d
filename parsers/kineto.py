"""Kineto Chrome-trace JSON (torch.profiler of every release since 1.8) → `RankTrace`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from tracekit.errors import BrokenInput, UnusableInput
from tracekit.model import UNIX_NS, HostCat, RankTrace, TraceMeta
from tracekit.parsers import metadata, prefilter
from tracekit.parsers.assemble import assemble
from tracekit.parsers.columns import Columns
from tracekit.parsers.core import Core, in_use
from tracekit.parsers.decode import Batch, decode, needs_text
from tracekit.parsers.documents import BLOCK, Document, Documents
from tracekit.parsers.frames import Frames
from tracekit.parsers.memory import split_large, without_gc
from tracekit.parsers.repair import LADDER, MAX_PIECE
from tracekit.parsers.source import Source

if TYPE_CHECKING:
    import re
    from pathlib import Path

_SALVAGE = "read without --strict to salvage the rest"


class KinetoReader:
    """Reads one file; `parse` returns one trace a document and process."""

    def __init__(
        self,
        path: Path,
        *,
        strict: bool = False,
        frames: re.Pattern[str] | None = None,
        frame_names: re.Pattern[str] | None = None,
        block: int = BLOCK,
    ) -> None:
        self.path, self.strict, self.by_core = path, strict, in_use()
        self.source = Source(path)
        self.frames = None if frames is frame_names is None else Frames(frames, frame_names)
        self._next_document()
        self.text_times = False
        self.documents = Documents(self.source, self._chunk, self._event, block)

    def parse(self) -> list[RankTrace]:
        """All traces of the file; raises UnusableInput when no event can be used."""
        traces: list[RankTrace] = []
        try:
            split_large()
            with without_gc():
                for doc in self.documents:
                    traces += self._finish(doc, len(traces))
                    self._next_document()
        finally:
            self.source.close()
        usable = [t for t in traces if len(t.device) or (t.host.cat != HostCat.PYTHON).any()]
        if not usable:
            raise UnusableInput(self._nothing(traces))
        for trace in usable:
            trace.meta.json_bytes = self.source.read_bytes
        return usable

    def _next_document(self) -> None:
        self.columns = Columns(self.frames)
        self.core: Core | None = None

    def _nothing(self, traces: list[RankTrace]) -> str:
        counts = sum(sum(t.event_counts.values()) for t in traces)
        why = f" ({self.source.damage})" if self.source.damage else ""
        lost = sum(h.count for t in traces for h in t.health if h.severity == "lost")
        if not counts:
            return (
                f"{self.path}: no usable event in traceEvents{why}; {lost} damaged; "
                "the recording may have failed or been cut: record again"
            )
        return (
            f"{self.path}: {counts} events, but only metadata and no timed work{why}; "
            "record again with CPU or CUDA activities on"
        )

    # ------------------------------------------------------------- callbacks of the walk

    def _decode(self, data: bytes) -> Batch:
        batch = decode(data, text_times=self.text_times)
        if not self.text_times and needs_text(batch):
            self.text_times = True
            batch = decode(data, text_times=True)
        return batch

    def _chunk(self, _: Document, data: bytes) -> None:
        """Whole events → columns; raises ValueError before anything is taken."""
        if not self._compiled(data):
            self._interpreted(data)
        if self.strict:
            self._refuse_notes(len(data))

    def _compiled(self, data: bytes) -> bool:
        """The compiled core takes a chunk when it and the decoder find no fault in it."""
        if not self.by_core:
            return False
        self.core = self.core or Core(self.columns)
        found = self.core.scan(data, text_times=self.text_times)
        if found is None:
            return False
        try:
            batch = decode(found.rest, text_times=self.text_times) if found.n_rest else []
        except ValueError:
            return False
        if sum(len(events) for _, _, events in batch) != found.n_rest:
            return False
        if not self.text_times and needs_text(batch):
            return False
        self.core.add(found)
        self.columns.add(batch)
        return True

    def _interpreted(self, data: bytes) -> None:
        # Rows that are only counted are not proven to be valid JSON: strict reading decodes all.
        found = None if self.text_times or self.strict else prefilter.split(data, self.frames, self.columns.heads)
        if found is None or needs_text(found[0]):
            batch = self._decode(data)
        else:
            batch, skipped = found
            self.columns.counts.update(skipped)
        self.columns.add(batch)

    def _event(self, _: Document, piece: bytes) -> bytes | None:
        """One event alone, repaired if it must be; None when nothing helps."""
        if self._valid(piece):
            return piece
        if len(piece) > MAX_PIECE:
            return None
        fixed = piece
        for reason, repair in LADDER:
            fixed = repair(fixed)
            if self._valid(fixed):
                self._repaired(reason, piece)
                return fixed
        return self._odd_args(piece)

    def _valid(self, piece: bytes) -> bool:
        try:
            self._decode(piece)
        except ValueError:
            return False
        return True

    def _odd_args(self, piece: bytes) -> bytes | None:
        """Valid JSON whose `args` is no object (third-party writers): keep the event without it."""
        try:
            event = msgspec.json.decode(piece)
        except (ValueError, RecursionError):
            return None
        if not isinstance(event, dict) or "args" not in event:
            return None
        event.pop("args")
        fixed = json.dumps(event).encode()
        if not self._valid(fixed):
            return None
        self._repaired("arguments that are no object dropped", piece)
        return fixed

    def _repaired(self, reason: str, piece: bytes) -> None:
        example = piece[:120].decode("utf-8", "replace")
        if self.strict:
            where = f"after byte {self.documents.offset:,}, near {example!r}"
            raise BrokenInput(f"{self.path}: damaged event: {reason} ({where}); {_SALVAGE}")
        self.columns.note("repaired", reason, 1, example)

    def _refuse_notes(self, size: int) -> None:
        start = self.documents.offset
        for key in self.columns.notes:
            if key[0] != "info":
                where = f"bytes {start:,} to {start + size:,}, near {self.columns.examples[key]!r}"
                raise BrokenInput(f"{self.path}: {key[1]} ({where}); {_SALVAGE}")

    # ------------------------------------------------------------- end of a document

    def _finish(self, doc: Document, part: int) -> list[RankTrace]:
        if self.core is not None:
            self.core.finish()
        before, after, odd = metadata.read_pairs(doc.head, doc.tail)
        self._account(doc, odd)
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
        meta.era = metadata.era(before, after, categories, fractional_epoch=self.text_times)
        return assemble(c, meta, self._base(meta))

    def _base(self, meta: TraceMeta) -> int:
        """Relative times get the file's base; times that are absolute already do not."""
        last = max(t["ts"].last(len(t["ts"])).max(initial=0) for t in (self.columns.host, self.columns.device))
        return 0 if last >= UNIX_NS else (meta.base_ns or 0)

    def _account(self, doc: Document, odd: list[tuple[str, str, str]]) -> None:
        if self.source.damage:
            doc.lose("lost", self.source.damage.split(" (")[0], self.source.damage)
        elif not doc.complete:
            where = f"byte {self.source.read_bytes:,}"
            doc.lose("lost", "the file ends inside traceEvents (truncated)", where)
        for severity, reason, example in odd:
            doc.lose(severity, reason, example)
        for (severity, reason), count in doc.losses.items():
            example = doc.examples[severity, reason]
            if self.strict and severity != "info":
                raise BrokenInput(f"{self.path}: {reason} ({example[:160]}); {_SALVAGE}")
            self.columns.note(severity, reason, count, example[:200])


def parse(
    path: Path,
    *,
    strict: bool = False,
    frames: re.Pattern[str] | None = None,
    frame_names: re.Pattern[str] | None = None,
    block: int = BLOCK,
) -> list[RankTrace]:
    """Parse one Kineto file; `block` (bytes read at a time) only matters to tests.

    frames: Python frames whose name contains a match become host rows (`HostCat.PYTHON`); others are only counted.
    frame_names: the names of frames that contain a match are among `RankTrace.names`, whether rows are kept or not.
    """
    return KinetoReader(path, strict=strict, frames=frames, frame_names=frame_names, block=block).parse()


PARSER = parse
