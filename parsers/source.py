"""Bytes of a trace file, decompressed as a stream under safety limits."""

from __future__ import annotations

import stat
import zlib
from typing import IO, TYPE_CHECKING, Any

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput

if TYPE_CHECKING:
    from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
MAX_RATIO = 400
"""Decompressed/compressed bytes; real traces reach 29, a bomb 1,000."""
RATIO_FLOOR = 256 << 20
"""The ratio is not looked at below this many decompressed bytes."""
MAX_BYTES = 1 << 40
_INPUT = 64 << 10
_STEP = 64 << 10
"""Bytes decompressed at a time: a damaged block costs no more than this of the output before it."""
_TRAILER = 8
_GZIP_WINDOW = 31


def _decompressor() -> tuple[Any, tuple[type[Exception], ...]]:
    """A fresh gzip member decoder and the errors it raises; igzip is twice as fast as zlib."""
    try:
        from isal import isal_zlib
    except ImportError:  # pragma: no cover - platforms without a wheel still read
        return zlib.decompressobj(_GZIP_WINDOW), (zlib.error,)
    failure: Any = isal_zlib.error
    return isal_zlib.decompressobj(_GZIP_WINDOW), (zlib.error, failure)


class _Gunzip:
    """Streaming gunzip of several members that never loses what was already decompressed."""

    def __init__(self, raw: IO[bytes], size: int) -> None:
        self.raw = raw
        self.size = size
        self.damage: str | None = None
        self.pending = b""
        self.full = False
        self.done = False
        self.member, self.errors = _decompressor()

    def read(self, n: int) -> bytes:
        parts: list[bytes] = []
        while n > 0 and not self.done:
            data = self._step(n)
            parts.append(data)
            n -= len(data)
        return b"".join(parts)

    def _step(self, n: int) -> bytes:
        if self.member.eof and not self._next_member():
            return b""
        limit = min(n, _STEP)
        # A full step may have left output inside the decoder: take that before any new input.
        data = self.pending or (b"" if self.full else self._input())
        drained = self.full and not data
        try:
            out: bytes = self.member.decompress(data, limit)
        except self.errors as e:
            self.done, self.damage = True, f"compressed stream is damaged ({e})"
            return b""
        self.pending = self.member.unconsumed_tail
        self.full = len(out) == limit
        if not data and not out and not drained and not self.member.eof:
            self.done, self.damage = True, "compressed stream ends early (truncated gzip)"
        return out

    def _input(self) -> bytes:
        """More of the file; its last bytes come alone: a wrong checksum then costs no output."""
        left = self.size - _TRAILER - self.raw.tell()
        return self.raw.read(min(_INPUT, left) if left > 0 else _INPUT)

    def _next_member(self) -> bool:
        rest = self.member.unused_data.lstrip(b"\0")
        while len(rest) < len(GZIP_MAGIC) and (more := self._input()):
            rest = (rest + more).lstrip(b"\0")
        if rest[:2] == GZIP_MAGIC:
            self.member, self.errors = _decompressor()
            self.pending = rest
            return True
        self.done = True
        if rest:
            self.damage = f"compressed stream is followed by {rest[:8]!r}, which is not gzip (ignored)"
        return False


class Source:
    """One open trace file: `read(n)` gives decompressed bytes, b"" at the end.

    `damage` is None, or why the stream ended early (what came before is still good).
    """

    def __init__(self, path: Path) -> None:
        try:
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                raise UnusableInput(f"{path}: not a regular file; pass a trace file")
            raw = path.open("rb", buffering=0)
        except OSError as e:
            raise UnusableInput(f"{path}: cannot be opened ({e.strerror}); check the path and its permissions") from e
        self.path = path
        self.file_bytes = info.st_size
        self.read_bytes = 0
        head = raw.read(2)
        raw.seek(0)
        self.compression = "gzip" if head == GZIP_MAGIC else None
        self._raw = raw
        self._gunzip = _Gunzip(raw, info.st_size) if self.compression else None

    @property
    def damage(self) -> str | None:
        """Why the compressed stream ended early, or None."""
        return self._gunzip.damage if self._gunzip else None

    def read(self, n: int) -> bytes:
        """Up to n decompressed bytes; raises LimitExceeded for a decompression bomb."""
        try:
            data = self._gunzip.read(n) if self._gunzip else self._raw.read(n)
        except OSError as e:
            raise UnusableInput(f"{self.path}: cannot be read at byte {self.read_bytes:,} ({e.strerror})") from e
        self.read_bytes += len(data)
        self._check_limits()
        return data

    def _check_limits(self) -> None:
        too_dense = self.read_bytes > RATIO_FLOOR and self.read_bytes > MAX_RATIO * max(self.file_bytes, 1)
        if self.compression and too_dense:
            raise LimitExceeded(
                f"{self.path}: expands more than {MAX_RATIO}-fold (at {self.read_bytes:,} bytes); "
                "traces stay under 30-fold, so this looks like a decompression bomb"
            )
        if self.read_bytes > MAX_BYTES:
            raise LimitExceeded(f"{self.path}: more than {MAX_BYTES:,} bytes of JSON; split the recording")

    def close(self) -> None:
        """Release the file handle."""
        self._raw.close()


def whole(path: Path, most: int, advice: str, fix: str) -> tuple[bytes, Source]:
    """All bytes of a small file, and its closed source. advice, fix: what to do about a large one, and a damaged one.

    Raises LimitExceeded beyond `most` decompressed bytes, BrokenInput for a damaged stream, and what `Source` raises.
    """
    source = Source(path)
    parts, size = [], 0
    try:
        while block := source.read(1 << 20):
            parts.append(block)
            size += len(block)
            if size > most:
                raise LimitExceeded(f"{path}: more than {most:,} bytes; {advice}")
    finally:
        source.close()
    if source.damage:
        raise BrokenInput(f"{path}: {source.damage}; {fix}")
    return b"".join(parts), source
