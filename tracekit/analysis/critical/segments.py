"""Segments of paths → the table `critical_path`, and their sums by rank, kind and strategy."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tracekit.analysis.critical.pieces import COMM, KINDS, UNSPLIT
from tracekit.analysis.tables import build, encoded, from_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analysis.critical.joint import Joint
    from tracekit.analysis.critical.parts import Ints
    from tracekit.analysis.critical.path import Segments, Walk

Row = dict[str, Any]


def path_table(walk: Walk, s: Segments, steps: Sequence[int]) -> pa.Table:
    """The published table. steps: number of the step of each path."""
    joint = walk.joint
    first = np.searchsorted(s.path, np.arange(len(steps)))
    ranks = np.array([one.rank or 0 for one in joint.inputs] + [0], np.int64)
    rankless = np.array([one.rank is None for one in joint.inputs] + [True], np.bool_)
    lanes = [lane for one in joint.inputs for lane in one.graph.lanes]
    lane = np.where(s.lane >= 0, s.lane + _bases(joint, "lanes")[s.part], len(lanes))
    places = np.array([*lanes, (0, 0)], np.int64)[lane]
    nameless = np.array([not name for name in walk.names] + [True], np.bool_)
    return build("critical_path", {
        "step": from_numpy(np.array(steps, np.int64)[s.path], pa.int32()),
        "segment": from_numpy(np.arange(len(s)) - first[s.path], pa.int32()),
        "rank": from_numpy(ranks[s.part], pa.int32(), rankless[s.part]),
        "device": from_numpy(places[:, 0], pa.int32(), s.lane < 0),
        "stream": from_numpy(places[:, 1], pa.int64(), s.lane < 0),
        "thread": _text(*_words([one.graph.threads for one in joint.inputs], s.part, s.thread)),
        "kind": _text(s.kind, KINDS),
        "strategy": _text(*_labels(joint, s, 0)), "op": _text(*_labels(joint, s, 1)),
        "name": _text(np.where(nameless[s.name], -1, s.name), walk.names),
        "ts_ns": from_numpy(s.start, pa.int64()), "dur_ns": from_numpy(s.end - s.start, pa.int64()),
        "gap_ns": from_numpy(s.gap, pa.int64()), "copy_ns": from_numpy(s.copy, pa.int64()),
        "count": from_numpy(s.count, pa.int32()), "call_id": from_numpy(s.call, pa.int32(), s.call < 0),
        "match_id": from_numpy(s.match, pa.int64(), s.match < 0), "reason": _text(s.reason, walk.reasons),
    })  # fmt: skip


def _text(codes: Ints, words: Sequence[str]) -> pa.Array[Any]:
    return encoded(codes.astype(np.int32), words, codes < 0)


def _bases(joint: Joint, name: str) -> Ints:
    """Where each recording's part of a list over all of them begins."""
    return np.cumsum([0, *(len(getattr(one.graph, name)) for one in joint.inputs[:-1])])


def _labels(joint: Joint, s: Segments, which: int) -> tuple[Ints, list[str]]:
    """The strategy (0) or operation (1) of the calls that segments are."""
    calls = [one.graph.label for one in joint.inputs]
    label = np.full(len(s), -1, np.int64)
    known = np.flatnonzero(s.call >= 0)
    first = np.cumsum([0, *map(len, calls)])
    label[known] = np.concatenate(calls)[first[s.part[known]] + s.call[known]]
    return _words([[label[which] for label in one.graph.labels] for one in joint.inputs], s.part, label)


def _words(lists: Sequence[Sequence[str]], part: Ints, position: Ints) -> tuple[Ints, list[str]]:
    """(word of each, -1 = none; words) of what `position` says in the list of its recording."""
    number: dict[str, int] = {}
    code = [number.setdefault(word, len(number)) for words in lists for word in words]
    first = np.cumsum([0, *map(len, lists)])
    return np.array([*code, -1], np.int64)[np.where(position >= 0, first[part] + position, -1)], list(number)


class Shares:
    """Sums of each path by recording, kind and strategy."""

    def __init__(self, joint: Joint, s: Segments) -> None:
        self._joint = joint
        strategy, words = _labels(joint, s, 0)
        on_host = np.array([one.graph.on_host for one in joint.inputs], np.bool_)
        comm = ((s.kind == COMM) | (s.kind == UNSPLIT)) & (s.part >= 0)
        words = words if "unknown" in words else [*words, "unknown"]
        strategy = np.where(comm, np.where(s.call >= 0, strategy, words.index("unknown")), -1)
        pieces = s.by_kind(on_host)
        at = np.concatenate([rows for rows, _, _ in pieces])
        kind, ns = (np.concatenate([piece[i] for piece in pieces]) for i in (1, 2))
        shared = np.where((kind == COMM) | (kind == UNSPLIT), strategy[at], -1)
        sizes = (int(s.path.max(initial=0)) + 1, len(joint.inputs) + 1, len(KINDS), len(words) + 1)
        code = np.ravel_multi_index((s.path[at], s.part[at] + 1, kind, shared + 1), sizes)
        found, of = np.unique(code, return_inverse=True)
        sums, count = np.zeros(len(found), np.int64), np.bincount(of, minlength=len(found))
        np.add.at(sums, of, ns)
        self._of: dict[int, list[tuple[int, str, str | None, int, int]]] = defaultdict(list)
        columns = (*np.unravel_index(found, sizes), sums, count)
        for path, part, k, word, total, n in zip(*(c.tolist() for c in columns), strict=True):
            self._of[path].append((part - 1, KINDS[k], words[word - 1] if word else None, total, n))

    def recordings(self, path: int) -> int:
        """Recordings that a path visits."""
        return len({part for part, *_ in self._of[path]})

    def rows(self, path: int, step: int, length: int) -> list[Row]:
        """Rows of `critical_shares` of a path, which is that of a step and `length` ns long."""
        inputs = self._joint.inputs
        order = sorted(self._of[path], key=lambda x: (x[0], -x[3], str(x[:3])))
        return [
            {
                "step": step, "rank": inputs[part].rank if part >= 0 else None, "kind": kind, "strategy": strategy,
                "dur_ns": ns, "ratio": ns / length, "segments": count,
            }
            for part, kind, strategy, ns, count in order
        ]  # fmt: skip
