"""Bytes of a trace file, decompressed as a stream under safety limits."""

from __future__ import annotations

import gzip
import zlib
from typing import IO, TYPE_CHECKING

from tracekit.errors import LimitExceeded, UnusableInput

if TYPE_CHECKING:
    from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
MAX_RATIO = 400
"""Decompressed/compressed bytes; real traces reach 29, a bomb 1,000."""
RATIO_FLOOR = 256 << 20
"""The ratio is not looked at below this many decompressed bytes."""
MAX_BYTES = 1 << 40


class Source:
    """One open trace file: `read(n)` gives decompressed bytes, b"" at the end.

    `damage` is None, or why the stream ended early (what came before is still good).
    """

    def __init__(self, path: Path) -> None:
        try:
            raw = path.open("rb")
        except OSError as e:
            raise UnusableInput(f"{path}: cannot be opened ({e.strerror}); check the path and its permissions") from e
        self.path = path
        self.file_bytes = path.stat().st_size
        self.read_bytes = 0
        self.damage: str | None = None
        head = raw.read(2)
        raw.seek(0)
        self.compression = "gzip" if head == GZIP_MAGIC else None
        self._raw = raw
        self._stream: IO[bytes] = _gzip_reader(raw) if self.compression else raw

    def read(self, n: int) -> bytes:
        """Up to n decompressed bytes; raises LimitExceeded for a decompression bomb."""
        if self.damage:
            return b""
        try:
            data = self._stream.read(n)
        except (EOFError, OSError, zlib.error, ValueError) as e:
            self.damage = f"compressed stream ends early ({e})"
            return b""
        except Exception as e:
            # igzip raises its own error type, which is not an OSError in every release.
            if type(e).__module__.startswith("isal"):
                self.damage = f"compressed stream is damaged ({e})"
                return b""
            raise
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


def _gzip_reader(raw: IO[bytes]) -> IO[bytes]:
    try:
        from isal import igzip
    except ImportError:  # pragma: no cover - isal is a dependency; platforms without it still read
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    reader: IO[bytes] = igzip.IGzipFile(fileobj=raw)
    return reader
