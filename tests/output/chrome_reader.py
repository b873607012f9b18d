"""A strict reader of Chrome trace events, with the rules of Perfetto's importer; shares no code with the writer.

Rules: one JSON object; complete slices ("X") with name, pid, tid, ts and dur ≥ 0; times are doubles of µs that the
importer multiplies by 1,000 and cuts; slices of a track, taken in order of time (file order where equal), nest or follow one another, else
the importer drops them; a flow ends on a slice after it began on one; every track has a name, and one number names
one track of the file.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Slice:
    name: str
    cat: str
    start: int
    end: int
    args: dict[str, Any]
    parent: Slice | None = None
    process: str = ""
    track: str = ""


@dataclass
class Trace:
    slices: list[Slice] = field(default_factory=list)
    flows: list[tuple[Slice, Slice]] = field(default_factory=list)
    other: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    def on(self, process: str, track: str) -> list[Slice]:
        """Slices of a line and of its further lanes."""
        return [s for s in self.slices if s.process == process and re.sub(r" \(\d+\)$", "", s.track) == track]


def ns(value: Any) -> int:
    assert isinstance(value, int | float)
    return int(float(value) * 1000.0)


def read(path: Path) -> Trace:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("ascii")
    whole = json.loads(text)
    assert set(whole) == {"displayTimeUnit", "traceEvents", "otherData"}
    out = Trace(other=whole["otherData"], text=text)
    processes: dict[int, str] = {}
    tracks: dict[int, tuple[int, str]] = {}
    events = []
    for at, e in enumerate(whole["traceEvents"]):
        if e["ph"] == "M":
            assert e["name"] in {
                "process_name",
                "process_sort_index",
                "process_labels",
                "thread_name",
                "thread_sort_index",
            }
            if e["name"] == "process_name":
                assert e["pid"] not in processes
                processes[e["pid"]] = e["args"]["name"]
            if e["name"] == "thread_name":
                assert e["tid"] not in tracks
                tracks[e["tid"]] = (e["pid"], e["args"]["name"])
            continue
        assert e["ph"] in {"X", "s", "f"}
        assert ns(e["ts"]) >= 0
        events.append((ns(e["ts"]), at, e))
    events.sort(key=lambda t: t[:2])
    open_: dict[int, list[Slice]] = defaultdict(list)
    began: dict[Any, Slice] = {}
    for start, _, e in events:
        pid, name = tracks[e["tid"]]
        assert pid == e["pid"]
        stack = open_[e["tid"]]
        while stack and stack[-1].end <= start:
            stack.pop()
        if e["ph"] == "X":
            dur = ns(e["dur"])
            assert dur >= 0
            one = Slice(
                e["name"],
                e["cat"],
                start,
                start + dur,
                e.get("args", {}),
                stack[-1] if stack else None,
                processes[pid],
                name,
            )
            assert one.parent is None or one.end <= one.parent.end, f"{one} would be dropped"
            stack.append(one)
            out.slices.append(one)
        elif e["ph"] == "s":
            assert (e["cat"], e["name"], e["id"]) not in began
            began[e["cat"], e["name"], e["id"]] = stack[-1]
        else:
            assert e["bp"] == "e"
            out.flows.append((began[e["cat"], e["name"], e["id"]], stack[-1]))
    return out


def union(spans: list[tuple[int, int]]) -> int:
    """Length of a union, the slow way."""
    total, reach = 0, -1
    for a, b in sorted(spans):
        total += max(0, b - max(a, reach))
        reach = max(reach, b)
    return total
