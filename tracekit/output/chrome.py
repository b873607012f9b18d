"""A stream of Chrome trace events, as ui.perfetto.dev, chrome://tracing and Perfetto's trace processor read them."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import zlib
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from tracekit.errors import TracekitError, UsageError
from tracekit.output.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

FIRST_TRACK = 10_000_000
"""Track ids: one number names one track of the whole file, since Perfetto names threads by `tid` alone."""
LONGEST_NAME = 512
_BUFFER = 4_096


def quoted(text: object) -> str:
    """Text from a trace as a JSON string: ASCII only, no control or direction characters, of bounded length."""
    return json.dumps(clean(str(text)[:LONGEST_NAME]))


def micros(ns: int) -> str:
    """ns as microseconds, the format's unit.

    Perfetto multiplies by 1,000 and cuts, so 1.001 would become 1,000 ns: a hundredth of a nanosecond more keeps
    every whole nanosecond, and readers that round get the same.
    """
    whole, rest = divmod(ns, 1000)
    return f"{whole}.{rest:03d}01" if rest else str(whole)


def may_write(path: Path, *, overwrite: bool = False) -> None:
    """UsageError where the file is a folder, or something else than a trace written here (without `overwrite`)."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file, such as {path / 'trace.json.gz'}")
    if not path.exists() or overwrite:
        return
    try:
        with path.open("rb") as raw:
            head = raw.read(2)
        with gzip.open(path) if head == b"\x1f\x8b" else path.open("rb") as stream:
            ours = stream.read(len(_HEAD)) == _HEAD
    except (OSError, EOFError, zlib.error):
        ours = False
    if not ours:
        raise UsageError(f"{path}: is a file that tracekit did not write; name another, or replace it with -f")


_HEAD = b'{"displayTimeUnit": "ns",\n"traceEvents": [\n'


@dataclass(slots=True)
class Track:
    """One line of one process; slices on it must nest or follow one another."""

    process: int
    number: int


@dataclass
class ChromeTrace:
    """Writes `path` (gzip where it ends in .gz) event by event; it appears under its name when it is whole.

    Times are ns; `shift` is added to each, so that none is negative.
    """

    path: Path
    shift: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)
    slices: int = 0
    flows: int = 0

    def __enter__(self) -> ChromeTrace:
        self._numbers: Iterator[int] = itertools.count(FIRST_TRACK)
        self._lines: list[str] = []
        self._processes = 0
        self._staging = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            raw = self._staging.open("wb")
        except OSError as e:
            raise UsageError(f"{self.path}: cannot be written ({e.strerror or e}); name another file") from e
        self._raw: IO[bytes] = raw
        self._sink: IO[bytes] = _gzip(raw) if self.path.suffix == ".gz" else raw
        self._sink.write(_HEAD)
        self._first = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                about = {**self.about, "shift_ns": self.shift, "slices": self.slices, "flows": self.flows}
                tail = '\n],\n"otherData": ' + json.dumps({k: _plain(v) for k, v in about.items()}) + "}\n"
                self._sink.write(tail.encode())
            if self._sink is not self._raw:
                self._sink.close()
            self._raw.close()
            if kind is None:
                self._staging.replace(self.path)
        except OSError as e:
            raise self._failed(e) from e
        finally:
            self._staging.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> TracekitError:
        return TracekitError(f"{self.path}: cannot be written ({error.strerror or error}); check the space")

    def process(self, name: str, number: int, labels: str = "") -> int:
        """Begin a process (`number` > 0 also orders it); `labels` stands beside its name."""
        self._about(number, None, "process_name", f'{{"name": {quoted(name)}}}')
        self._about(number, None, "process_sort_index", f'{{"sort_index": {number}}}')
        if labels:
            self._about(number, None, "process_labels", f'{{"labels": {quoted(labels)}}}')
        return number

    def track(self, process: int, name: str) -> Track:
        """A new line of a process, below the earlier ones."""
        number = next(self._numbers)
        self._about(process, number, "thread_name", f'{{"name": {quoted(name)}}}')
        self._about(process, number, "thread_sort_index", f'{{"sort_index": {number - FIRST_TRACK}}}')
        return Track(process, number)

    def slice(self, track: Track, name: str, kind: str, start: int, end: int, args: str = "") -> None:
        """One slice; name, kind and args are JSON text (see `quoted`). Write a parent before its children."""
        self.slices += 1
        more = f', "args": {args}' if args else ""
        self._add(
            f'{{"ph": "X", "name": {name}, "cat": {kind}, "pid": {track.process}, "tid": {track.number}, '
            f'"ts": {micros(start + self.shift)}, "dur": {micros(end - start)}{more}}}'
        )

    def flow(self, track: Track, name: str, number: int, at: int, *, begins: bool) -> None:
        """One end of an arrow: from the slice around `at` (written just before), or to it."""
        self.flows += not begins
        how = '"s"' if begins else '"f", "bp": "e"'
        self._add(
            f'{{"ph": {how}, "name": {name}, "cat": "flow", "id": {number}, "pid": {track.process}, '
            f'"tid": {track.number}, "ts": {micros(at + self.shift)}}}'
        )

    def _about(self, process: int, track: int | None, name: str, args: str) -> None:
        tid = "" if track is None else f', "tid": {track}'
        self._add(f'{{"ph": "M", "name": "{name}", "pid": {process}{tid}, "args": {args}}}')

    def _add(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            head = "" if self._first else ",\n"
            self._sink.write((head + ",\n".join(self._lines)).encode())
            self._first, self._lines = False, []


def _plain(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else value


def _gzip(raw: IO[bytes]) -> IO[bytes]:
    from isal import igzip

    # No name and no time in the header: the same tables give the same bytes.
    packed: Any = igzip.IGzipFile(filename="", mode="wb", compresslevel=2, fileobj=raw, mtime=0)  # type: ignore[no-untyped-call]
    return io.BufferedWriter(packed, 1 << 20)
