"""The algorithm, protocol and channels that NCCL chose, from the TUNING lines of its log.

Such a line names no call: it is given to the oldest recent call of its thread with that operation and size. Only the
last calls of a log are kept, so the lines wait until it is known which.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Thread = tuple[tuple[str, int], int]
    Choice = tuple[Any, ...]
    Candidate = tuple[Thread, str, int, int]

TUNES = b" Bytes -> "
_RECENT = 64
_MAX_TEXTS = 1 << 18
NO_TEXT = -1
"""Number of a text beyond the most that are kept."""
_TUNED = re.compile(
    rb"(?:(?<!\w)(\w+)(?: \[(Symmetric|Copy Engine)\])?: )?(?<!\d)(\d+) Bytes -> "
    rb"(?:Algo (\S+) proto (\S+)(?: time ([\d.]+))?(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
    rb"|Kernel (\S+)(?: nchannels (\d+))?|(cudaMemcpy\S*))"
)
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
"""By number, as versions before 2.25 print them."""


class Tunings:
    """The last lines of a log that tell a choice, about `size` of them, each with the number of the call after it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.untied = 0
        self._parts: deque[tuple[NDArray[np.int64], NDArray[np.int32]]] = deque()
        self._kept = 0
        self._numbers: dict[bytes, int] = {}
        self._texts: list[bytes] = []

    def number(self, line: bytes) -> int:
        """Number of a line's text."""
        found = self._numbers.get(line)
        if found is None:
            if len(self._texts) >= _MAX_TEXTS:
                return NO_TEXT
            found = self._numbers[line] = len(self._texts)
            self._texts.append(line)
        return found

    def add_one(self, row: int, line: bytes) -> None:
        """Remember one line."""
        self.add(np.array([row], np.int64), np.array([self.number(line)], np.int32))

    def add(self, rows: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
        """Remember lines: number of the call after each, and of its text."""
        if not len(rows):
            return
        self._parts.append((rows, numbers))
        self._kept += len(rows)
        while self._kept - len(self._parts[0][0]) >= self.size:
            self._kept -= len(self._parts.popleft()[0])

    def choices(
        self,
        first: int,
        shapes: Sequence[int],
        counts: Sequence[int],
        thread_of: Callable[[bytes], Thread | None],
        candidate: Callable[[int, int], Candidate | None],
    ) -> dict[int, Choice]:
        """Choice of each call that a line can be tied to; `untied` counts lines without one.

        first, shapes, counts: the calls that are kept; thread_of(line): the thread that wrote it; candidate(shape,
        count): thread, operation, and bytes of a call that may be told of (of one rank and of all), else None.
        """
        out: dict[int, Choice] = {}
        recent: dict[Thread, deque[tuple[int, str, int, int]]] = defaultdict(lambda: deque(maxlen=_RECENT))
        parsed = [self._parsed(text, thread_of) for text in self._texts]
        done = first
        for row, number in self._after(first):
            for at in range(done, row):
                told = candidate(shapes[at - first], counts[at - first])
                if told is not None:
                    recent[told[0]].append((at, *told[1:]))
            done = max(done, row)
            thread, choice = parsed[number] if number >= 0 else (None, None)
            waiting = recent.get(thread) if thread is not None else None
            entry = _match(waiting, choice) if waiting and choice is not None else None
            if waiting is None or entry is None or choice is None:
                self.untied += 1
                continue
            waiting.remove(entry)
            out[entry[0]] = choice
        return out

    @staticmethod
    def _parsed(text: bytes, thread_of: Callable[[bytes], Thread | None]) -> tuple[Thread | None, Choice | None]:
        found = _TUNED.search(text)
        return thread_of(text), found.groups() if found is not None else None

    def _after(self, first: int) -> Iterator[tuple[int, int]]:
        """(row, number of the text) of the lines after the first call that is kept, in order."""
        for rows, numbers in self._parts:
            late = rows > first
            yield from zip(rows[late].tolist(), numbers[late].tolist(), strict=True)


def _match(recent: deque[tuple[int, str, int, int]], choice: Choice) -> tuple[int, str, int, int] | None:
    """The oldest call of that size; versions that do not name the operation print the total of gathering ones."""
    name, nbytes = (choice[0] or b"").decode(), int(choice[2])
    for entry in recent:
        _, op, own, total = entry
        if nbytes == (own if name else total) and name in ("", op):
            return entry
    return None


def choice(groups: Choice | None) -> dict[str, Any]:
    """Algorithm, protocol, channels and NCCL's own estimate (µs), as far as the line has them."""
    if groups is None:
        return {}
    _, _, _, algorithm, protocol, time, low, high, kernel, channels, copy = groups
    out: dict[str, Any] = {}
    if algorithm is not None:
        out["algorithm"] = _spelled(algorithm.decode("utf-8", "replace"), _ALGORITHMS)
        out["protocol"] = _spelled(protocol.decode("utf-8", "replace"), _PROTOCOLS)
    elif kernel is not None:
        out |= {"algorithm": "SYMMETRIC", "kernel": kernel.decode("utf-8", "replace")}
    else:
        out |= {"algorithm": "COPY_ENGINE", "kernel": copy.decode("utf-8", "replace")}
    if time is not None:
        out["estimate_us"] = float(time)
    if low is not None:
        out["channels"] = int(high) - int(low) + 1
    elif channels is not None:
        out["channels"] = int(channels)
    return out


def _spelled(text: str, names: tuple[str, ...]) -> str:
    return names[int(text)] if text.isdecimal() and len(text) < 3 and int(text) < len(names) else text
