"""The compiled decode core (`_core.c`), where it is installed: a chunk of events → columns, in one pass.

It reads the frequent rows and counts those that are only counted; whatever else stands in a chunk comes back as bytes
for the general decoder. A chunk it does not take gives what the pure Python path gives, because that then reads it.
`TRACEKIT_CORE=0` in the environment leaves the core out, `TRACEKIT_CORE=1` insists on it.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct

from tracekit.errors import UnusableInput
from tracekit.model import DeviceClass
from tracekit.parsers.columns import DEVICE_CATS, HOST_CATS, MTIA_CAT, RECORDING, Column, Columns, peer
from tracekit.parsers.comm import COMM_NAME
from tracekit.parsers.convert import MAX_DUR_NS
from tracekit.parsers.decode import Args
from tracekit.parsers.frames import CATEGORY
from tracekit.parsers.prefilter import FULL_NAMES

try:
    from tracekit.parsers import _core
except ImportError:  # built without a compiler
    _core = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from numpy.typing import NDArray

    from tracekit.parsers.comm import Repeated
    from tracekit.parsers.frames import Frames

    Codes = NDArray[np.int32]

VARIABLE = "TRACEKIT_CORE"
_REVISION = 5
# What becomes of the rows of a class; the numbers of `enum kind` in `_core.c`.
_REST, _FRAME, _HOST, _RUNTIME, _DEVICE, _COPY, _NOTE = 1, 3, 4, 5, 6, 7, 8
# Numbered texts of the scanner, in its order.
_NAMES, _TRACKS, _PLACES, _FRAMES, _CLASSES, _RECORDS = range(6)
_MAX_TEXTS = 1 << 18
_MAX_RECORDS = 1 << 15
"""With more texts or records than this a scanner is replaced: what it remembers must not grow with the file."""
_MAX_ROWS = 1 << 14
"""Rows that a scanner gathers before they join the columns."""
_MAX_UNSOUND = 64 << 20
"""Bytes of chunks that were not taken after which a scanner is replaced: it remembers texts of those, too."""
# Marks of texts, as in `_scan.h`: a frame that is not wanted or arguments that are none, a frame that is wanted.
_BAD, _WANTED = 1, 2
_ROW = {"ts": np.int64, "dur": np.int64, "ext": np.int64, "corr": np.int64}
_HOST_COLUMNS = (
    *_ROW.items(), ("seq", np.int64), ("comms_id", np.int64),
    ("name", np.int32), ("track", np.int32), ("comm", np.int32), ("cat", np.int8),
)  # fmt: skip
_DEVICE_COLUMNS = (
    *_ROW.items(), ("stream", np.int64), ("nbytes", np.int64), ("seq", np.int64), ("comms_id", np.int64),
    ("name", np.int32), ("place", np.int32), ("comm", np.int32), ("cls", np.int8),
)  # fmt: skip
_NOTE_COLUMNS = (
    ("ts", np.int64), ("dur", np.int64), ("ext", np.int64), ("stream", np.int64), ("name", np.int32),
    ("place", np.int32), ("comm", np.int32), ("cls", np.int8),
)  # fmt: skip
# Arguments the scanner reads itself, or that belong to no record; all others make a record, as they are written.
_READ = {
    "External id",
    "correlation",
    "device",
    "stream",
    "bytes",
    "fromDevice",
    "toDevice",
    "Seq",
    "Comms Id",
    "external id",
    "name",
    "labels",
}
_KEYS = tuple(
    sorted((f.encode_name.encode() for f in msgspec.structs.fields(Args) if f.encode_name not in _READ), key=len)
)
_ARGS = msgspec.json.Decoder(Args)
_NOTHING = Args()

Table = dict[str, "NDArray[Any]"]


def asked() -> str:
    """What the environment says of the core: "0", "1" or anything else."""
    return os.environ.get(VARIABLE, "")


def built(module: ModuleType | None, revision: int) -> bool:
    """Is a compiled module built for this interpreter, and of these sources?"""
    return module is not None and getattr(module, "REVISION", 0) == revision


def chosen(ready: bool, what: str) -> bool:
    """Does compiled code that is `ready` read? Raises UnusableInput when it was insisted on and is not there."""
    if asked() == "1" and not ready:
        raise UnusableInput(f"{VARIABLE}=1, but {what} is not built (anew); unset it, or install with a C compiler")
    return asked() != "0" and ready


def available() -> bool:
    """Is the core built for this interpreter, and of these sources?"""
    return built(_core, _REVISION)


def state() -> str:
    """Which decode stage reads Kineto files, in a few words."""
    if asked() == "0":
        return f"pure Python ({VARIABLE}=0)"
    missing = "not built" if _core is None else "of another revision; install again"
    return "compiled" if available() else f"pure Python (the compiled core is {missing})"


def in_use() -> bool:
    """Does the core read, as far as it can? Raises UnusableInput when it was insisted on and is not there."""
    return chosen(available(), "the compiled core")


class Found(Struct):
    """What a chunk leaves to the general decoder. rest: `event, event, …`; n_rest: how many; n_frames: frames among
    them that the scanner has counted.
    """

    rest: bytes
    n_rest: int
    n_frames: int


class Core:
    """Reads the chunks of one document into its columns: `scan` looks, `add` takes, `finish` after the last one."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.frames = columns.frames
        self._classes = _classes(columns.frames)
        self._n_frames = 0
        self._unsound = 0
        self._start()

    def _start(self) -> None:
        scanner = self._scanner = _core.Scanner(self._classes, FULL_NAMES, _KEYS, MAX_DUR_NS)
        # None of these refers to this object: in a cycle the rows would outlive the trace, as nothing collects it.
        c = self.columns
        self._names = _Numbered(scanner, _NAMES, lambda text: c.names[_string(text)])
        self._comm_names = _Numbered(scanner, _NAMES, lambda text: int(COMM_NAME.match(_string(text)) is not None))
        self._tracks = _Numbered(scanner, _TRACKS, lambda text: c.tracks[_pair(text)])
        self._places = _Numbered(scanner, _PLACES, lambda text: c.places[_pair(text)])
        self._frame_names: list[bytes] = []
        self._known: list[Repeated] = []
        """Of each number of arguments."""

    def scan(self, data: bytes, *, text_times: bool) -> Found | None:
        """Look at a chunk; None when it is for the pure path. text_times: as in `decode.decode`."""
        left = self._scanner.scan(data, text_times)
        if left is None or not self._all_known():
            self._unsound += len(data)
            if self._unsound > _MAX_UNSOUND:
                self._unsound = 0
                self.finish()
                self._start()
            return None
        frames, places, rest = left
        spans = np.frombuffer(rest, np.int64).reshape(-1, 2).tolist()
        n_frames = 0
        if frames:
            wanted = self._judge(np.frombuffer(frames, np.int32))
            if n_frames := int(np.count_nonzero(wanted)):
                spans = sorted(spans + np.frombuffer(places, np.int64).reshape(-1, 2)[wanted].tolist())
        return Found(b",".join([data[a:b] for a, b in spans]), len(spans), n_frames)

    def _judge(self, frames: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of these frames are wanted; the scanner knows it from now on."""
        self._frame_names += self._scanner.texts(_FRAMES, len(self._frame_names))
        wanted: set[int] = set()
        for number in np.unique(frames).tolist():
            kept = self.frames is not None and self.frames.wanted(_string(self._frame_names[number]))
            self._scanner.mark(_FRAMES, number, _WANTED if kept else _BAD)
            if kept:
                wanted.add(number)
        return np.isin(frames, list(wanted))

    def _all_known(self) -> bool:
        """Understand arguments of records that were not seen before; False when some are none."""
        sound = True
        for text in self._scanner.texts(_RECORDS, len(self._known)):
            try:
                args = _ARGS.decode(b"{%s}" % text)
            except ValueError:
                self._scanner.mark(_RECORDS, len(self._known), _BAD)
                args, sound = Args(), False
            self._known.append(self.columns.comm.repeated(args))
        return sound

    def add(self, found: Found) -> None:
        """Take the rows of the chunk that was looked at last (without its rest)."""
        self._n_frames += found.n_frames
        rows = self._scanner.keep()
        full = max(len(self._names.texts), len(self._frame_names)) > _MAX_TEXTS or len(self._known) > _MAX_RECORDS
        if rows > _MAX_ROWS or full:
            self.finish()
        if full:
            self._start()

    def finish(self) -> None:
        """All rows that were taken join the columns."""
        c, left = self.columns, iter(self._scanner.columns())
        host, device, notes = (
            {field: np.frombuffer(next(left), dtype) for field, dtype in table}
            for table in (_HOST_COLUMNS, _DEVICE_COLUMNS, _NOTE_COLUMNS)
        )
        self._count(np.frombuffer(next(left), np.int64))
        if len(host["ts"]):
            self._number(host, self._comm_names)
            host["name"] = self._names.codes(host["name"])
            host["track"] = self._tracks.codes(host["track"])
            _append(c.host, host)
        if len(device["ts"]):
            self._number(device, None)
            device["peer"] = self._peer(device)
            device["name"] = self._names.codes(device["name"])
            device["place"] = self._places.codes(device["place"])
            _append(c.device, device)
        if len(notes["ts"]):
            notes["name"] = self._names.codes(notes["name"])
            notes["place"] = self._places.codes(notes["place"])
            _append(c.annotations, notes)

    def _count(self, counts: NDArray[np.int64]) -> None:
        """Rows by `ph:cat`, without those the general decoder gets: it counts its own."""
        keys = self._scanner.texts(_CLASSES, 0)
        found = Counter({key.decode(): n for key, n in zip(keys, counts.tolist(), strict=True) if n})
        found[f"X:{CATEGORY}"] -= self._n_frames
        self.columns.counts.update(+found)
        self._n_frames = 0

    def _number(self, table: Table, named: _Numbered | None) -> None:
        """Give each row that is a communication record (of those that may be) a record of its own.

        named: tells by a row's name whether it is one; None: by the arguments, which name an operation.
        """
        rows = np.flatnonzero(table["comm"] >= 0)
        if not len(rows):
            return
        known = table["comm"][rows]
        table["comm"] = table["comm"].copy()
        of = [r.of for r in self._known] if named is None else []
        one = named.codes(table["name"][rows]) != 0 if named is not None else np.array(of, np.bool_)[known]
        table["comm"][rows[~one]] = -1
        rows = rows[one]
        place = np.array([r.number for r in self._known], np.int64)[known[one]]
        table["comm"][rows] = self.columns.comm.again(place, table["seq"][rows], table["comms_id"][rows])

    def _peer(self, device: Table) -> NDArray[np.int8]:
        """Between devices or not: copies without the arguments that say so tell it by their name."""
        out = np.zeros(len(device["ts"]), np.int8)
        rows = np.flatnonzero(device["cls"] == DeviceClass.MEMCPY)
        for name in np.unique(device["name"][rows]).tolist():
            out[rows[device["name"][rows] == name]] = peer(_string(self._names.text(name)), _NOTHING)
        return out


class _Numbered:
    """Texts a scanner has numbered, and what they are to us; only those that rows use are asked for."""

    def __init__(self, scanner: _core.Scanner, which: int, meaning: Callable[[bytes], int]) -> None:
        self._scanner, self._which, self._meaning = scanner, which, meaning
        self.texts: list[bytes] = []
        self._codes: Codes = np.empty(0, np.int32)

    def text(self, number: int) -> bytes:
        """The text of a number."""
        if number >= len(self.texts):
            self.texts += self._scanner.texts(self._which, len(self.texts))
        return self.texts[number]

    def codes(self, numbers: Codes) -> Codes:
        """int32 meaning (never negative) of each of some numbers."""
        if (new := int(numbers.max()) + 1 - len(self._codes)) > 0:
            self._codes = np.append(self._codes, np.full(new, -1, np.int32))
        out = self._codes[numbers]
        if out.min() < 0:
            for number in np.unique(numbers[out < 0]).tolist():
                self._codes[number] = self._meaning(self.text(number))
            out = self._codes[numbers]
        return out


def _append(out: dict[str, Column], table: Table) -> None:
    for field, column in out.items():
        column.append(table[field])


def _string(text: bytes) -> str:
    return text.decode() if b"\\" not in text else str(msgspec.json.decode(b'"%s"' % text))


def _pair(text: bytes) -> tuple[Any, ...]:
    return tuple(msgspec.json.decode(b"[%s]" % text))


def _classes(frames: Frames | None) -> tuple[tuple[bytes, int, int], ...]:
    """Categories of complete events ("X") and what becomes of their rows; of any other class rows are counted."""
    found = [(cat, _HOST if of in RECORDING else _RUNTIME, int(of)) for cat, of in HOST_CATS.items()]
    found += [(cat, _DEVICE if of == DeviceClass.KERNEL else _COPY, int(of)) for cat, of in DEVICE_CATS.items()]
    found += [("gpu_user_annotation", _NOTE, 0), (MTIA_CAT, _REST, 0)]
    found += [(CATEGORY, _FRAME, 0)] if frames is not None else []
    return tuple((f"X:{cat}".encode(), kind, value) for cat, kind, value in found)
