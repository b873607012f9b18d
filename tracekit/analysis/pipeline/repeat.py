"""Runs of kernels that are several others in a row: what separates micro-batches where no message does.

All micro-batches of a stage run the same kernels in the same order. A run that is made of shorter ones seen elsewhere
on the rank, put together in one way only, can be cut there; and one that repeats itself, where it does.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_PARTS, MOST_RUNS = 512, 64


def parts_of(runs: Sequence[NDArray[np.int32]]) -> list[tuple[tuple[int, ...], bool, int]]:
    """Per run the numbers of rows of its parts, in order, () for one that nothing cuts; whether it but repeats itself;
    and how many of the runs are the same.

    runs: names, int32 [n] each.
    """
    texts = [np.ascontiguousarray(run, np.int32).tobytes() for run in runs]
    found: dict[bytes, tuple[tuple[int, ...], bool]] = {}
    whole: list[bytes] = []
    for text in sorted(set(texts), key=lambda t: (len(t), t)):
        made = _made_of(text, whole)
        found[text] = (made, False) if made else (_repeated(text), True)
        if not made and len(whole) < MOST_RUNS:
            whole.append(text)
    often = Counter(texts)
    return [(*found[text], often[text]) for text in texts]


def _made_of(text: bytes, whole: Sequence[bytes]) -> tuple[int, ...]:
    """The fewest shorter runs, none made of others, of which this one consists, where there is one such way."""
    shorter = [k for k in whole if 0 < len(k) < len(text)]
    best: dict[int, tuple[int, int, int]] = {
        0: (0, 1, 0)
    }  # end → fewest parts, ways to have so few, the last one's size
    todo = [0]
    for at in todo:  # grows while it is read; ends are in order of the fewest parts
        count, ways, _ = best[at]
        if count == MOST_PARTS:
            break
        for k in shorter:
            if not text.startswith(k, at):
                continue
            end = at + len(k)
            if end not in best:
                best[end] = (count + 1, ways, len(k))
                todo.append(end)
            elif best[end][0] == count + 1:
                best[end] = (count + 1, best[end][1] + ways, len(k))
    count, ways, _ = best.get(len(text), (0, 0, 0))
    if ways != 1 or not 1 < count <= MOST_PARTS:
        return ()
    out: list[int] = []
    at = len(text)
    while at:
        out.append(best[at][2] // 4)
        at -= best[at][2]
    return tuple(reversed(out))


def _repeated(text: bytes) -> tuple[int, ...]:
    """The shortest part that a run is a repetition of."""
    names = np.frombuffer(text, np.int32)
    n = len(names)
    sizes = (d for d in range(1, n // 2 + 1) if n % d == 0 and names[d] == names[0])
    size = next((d for d in sizes if np.array_equal(names[d:], names[:-d])), n)
    return (size,) * (n // size) if 1 < n // size <= MOST_PARTS else ()
