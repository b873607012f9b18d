"""A parser of another package: reads "other format 1" files, lines of "kernel name, start ns, length ns"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import BrokenInput
from tracekit.model import DeviceAnnotations, DeviceRows, HealthEntry, HostRows, RankTrace, TraceMeta

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = "other format 1"


class Parser:
    """The entry point: `identify`, `title` and the call."""

    title = "other format"

    @staticmethod
    def identify(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC.encode()

    def __call__(self, path: Path, *, strict: bool) -> list[RankTrace]:
        rows, health = [], []
        for number, line in enumerate(path.read_text().splitlines()[1:], 2):
            name, *times = line.split(", ")
            if len(times) == 2:
                rows.append((name, int(times[0]), int(times[1])))
            elif strict:
                raise BrokenInput(f"{path}: line {number} is no kernel")
            else:
                health.append(HealthEntry("line that is no kernel", 1, "lost", line))
        names = sorted({r[0] for r in rows})
        n = len(rows)
        ts = np.array([r[1] for r in rows], np.int64)
        dur = np.array([r[2] for r in rows], np.int64)
        none, code = np.full(n, -1, np.int64), np.array([names.index(r[0]) for r in rows], np.int32)
        zero = np.zeros(n, np.int8)
        empty, small, tiny = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int8)
        return [
            RankTrace(
                TraceMeta(str(path), file_bytes=path.stat().st_size, rank=0), names, [],
                HostRows(empty, empty, small, tiny, small, empty, empty, small),
                DeviceRows(ts, dur, code, zero, zero.astype(np.int32), none, none, none, none, zero, none.astype(np.int32)),
                DeviceAnnotations(empty, empty, small, small, empty, empty),
                [], {"kernel": n}, health, (int(ts.min()), int((ts + dur).max())),
            )
        ]  # fmt: skip


PARSER = Parser()
