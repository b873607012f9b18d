"""Communicators as an NCCL log tells them: who is in them, and the graph that was built for them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from msgspec import Struct, field

from tracekit.parsers.nccl_common import comm_hash

_PAIRS = re.compile(rb"(?<!\w)(\w+) (0x[0-9a-fA-F]+|-?[0-9a-fA-F]+)\b")
_INIT = re.compile(rb"-\s*(?:Init|Abort|Destroy|Revoke)\s+(START|COMPLETE)")
_RING = re.compile(rb"Ring (\d+) : (-?\d+) -> (-?\d+) -> (-?\d+)")
_TREE = re.compile(rb"Tree (\d+) : (-?\d+) -> (-?\d+) -> (-?\d+)/(-?\d+)/(-?\d+)")
_TREES = re.compile(rb"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(-?\d+)->(-?\d+)")
_ORDER = re.compile(rb"Channel (\d+)/(\d+)\s+:((?:\s+\d+)+)\s*$")
_LINK = re.compile(
    rb"(?:Channel|CollNet) (\d+)(?:/\d+)? : (-?\d+)(?:\[\w+\])?(?: -> (-?\d+)(?:\[\w+\])?)?"
    rb"(?: \[(send|receive)\])? via (\S+(?: pointer)?)"
)
_CHANNELS = re.compile(rb"(?<!\d)(\d+) (coll|collnet|nvls|p2p) channels(?! per peer)")
_PER_PEER = re.compile(rb"(?<!\d)(\d+) p2p channels per peer")
_MAX_GRAPH = 4096
"""Channels or links kept of one communicator; no machine has more."""
Process = tuple[str, int]


class Comm(Struct):
    """One communicator in one process. key: unique in the file; device: CUDA ordinal; `rank` of the process in it;
    hash: identity shared by all ranks. ended: it was destroyed. graph: what the init lines say of channels and links.
    """

    key: str
    process: Process
    pointer: str
    device: int | None = None
    rank: int | None = None
    nranks: int | None = None
    hash: str | None = None
    complete: bool = False
    ended: bool = False
    graph: dict[str, Any] = field(default_factory=dict)


class Comms:
    """All communicators of a log; a pointer is reused once its communicator is destroyed, so each Init starts anew."""

    def __init__(self) -> None:
        self.all: list[Comm] = []
        self.current: dict[tuple[Process, str], Comm] = {}
        self._pending: dict[tuple[Process, int], dict[str, Any]] = {}
        self._starting: dict[tuple[Process, int], Comm] = {}
        self._last: dict[Process, Comm] = {}
        self._uses: Counter[str] = Counter()

    def of(self, process: Process, pointer: str, device: int | None, nranks: int | None = None) -> Comm:
        """The communicator behind a pointer; one that the log never introduced is known by its calls alone."""
        comm = self.current.get((process, pointer))
        if comm is None:
            comm = self._new(process, pointer)
            comm.device, comm.nranks = device, nranks
        return comm

    def _new(self, process: Process, pointer: str) -> Comm:
        key = f"{process[0]}:{process[1]}:{pointer}"
        self._uses[key] += 1
        comm = Comm(key if self._uses[key] == 1 else f"{key}#{self._uses[key]}", process, pointer)
        self.all.append(comm)
        self.current[process, pointer] = self._last[process] = comm
        return comm

    def line(self, process: Process, thread: int, text: bytes) -> Comm | None:
        """Take one message; returns the communicator that it begins or ends, None for any other line."""
        at = text.find(b"comm 0x")
        if at >= 0:
            return self._about(process, thread, text, at)
        self._graph(process, thread, text)
        return None

    def _about(self, process: Process, thread: int, text: bytes, at: int) -> Comm | None:
        said = {k.decode(): v.decode() for k, v in _PAIRS.findall(text[at:])}
        pointer = said.pop("comm", None)
        if pointer is None:
            return None
        stage = _INIT.search(text)
        low = text.lower()
        if stage is None or b"init" not in low[stage.start() :]:
            if b"destroy" in low or b"abort" in low:
                return self._end(process, pointer)
            if "nRanks" in said and (comm := self.current.get((process, pointer))) is not None:
                comm.graph.update({k: int(v) for k, v in said.items() if k != "rank" and v.isdigit()})
            return None
        comm = self.current.get((process, pointer))
        begins = stage[1] == b"START"
        if begins or comm is None or comm.ended or comm.complete or comm.rank is None:
            comm = self._new(process, pointer)
        self._describe(comm, said)
        key = process, thread
        if begins:
            self._starting[key] = comm
        else:
            comm.complete = True
            self._starting.pop(key, None)
        if graph := self._pending.pop(key, None):
            comm.graph.update(graph)
        return comm

    def _end(self, process: Process, pointer: str) -> Comm | None:
        comm = self.current.get((process, pointer))
        if comm is not None:
            comm.ended = True
        return comm

    def _describe(self, comm: Comm, said: dict[str, str]) -> None:
        comm.rank, comm.nranks = _number(said.get("rank")), _number(said.get("nranks"))
        comm.device = _number(said.get("cudaDev"))
        for name in ("nvmlDev", "color", "key"):
            if (value := _number(said.get(name))) is not None:
                comm.graph[name] = value
        if "busId" in said:
            comm.graph["busId"] = said["busId"]
        if "commId" in said:
            comm.hash = comm_hash(int(said["commId"], 16))  # the pattern of pairs lets hexadecimal through only
        elif "parent" in said and "color" in said:
            parent = self.current.get((comm.process, said["parent"]))
            number = said.get("splitCount") or said.get("childCount") or "0"
            comm.graph["parent"] = parent.key if parent else said["parent"]
            if parent is not None and parent.hash is not None:
                comm.hash = f"{parent.hash}/{number}/{said['color']}"

    # ------------------------------------------------------------------ graph

    def _graph(self, process: Process, thread: int, text: bytes) -> None:
        key = process, thread
        comm = self._starting.get(key)
        if comm is None and b" via " in text:
            comm = self._last.get(process)  # connections made at the first call, on another thread
        graph = comm.graph if comm is not None else self._pending.setdefault(key, {})
        if (found := _RING.search(text)) is not None:
            _put(graph, "rings", int(found[1]), (int(found[2]), int(found[4])))
        elif (found := _TREE.search(text)) is not None:
            down = tuple(int(found[i]) for i in (4, 5, 6))
            _put(graph, "trees", int(found[1]), (int(found[2]), down))
        elif text.startswith(b"Trees "):
            for channel, *down, _, up in _TREES.findall(text):
                _put(graph, "trees", int(channel), (int(up), tuple(map(int, down))))
        elif (found := _ORDER.search(text)) is not None:
            _put(graph, "order", int(found[1]), tuple(map(int, found[3].split())))
        elif (found := _LINK.search(text)) is not None:
            self._link(graph, found)
        elif text.startswith(b"Using network "):
            graph["network"] = text[14:].strip().decode("utf-8", "replace")[:120]
        elif b" coll channels" in text:
            graph["channels"] = {kind.decode(): int(n) for n, kind in _CHANNELS.findall(text)}
            if (found := _PER_PEER.search(text)) is not None:
                graph["channels"]["p2p_per_peer"] = int(found[1])

    @staticmethod
    def _link(graph: dict[str, Any], found: re.Match[bytes]) -> None:
        """Links are counted by (sender, receiver, transport): a machine has few, a log repeats them per channel."""
        links = graph.setdefault("links", Counter())
        receiver = None if found[3] is None else int(found[3])
        key = (int(found[2]), receiver, found[5].decode("utf-8", "replace")[:60])
        if key in links or len(links) < _MAX_GRAPH:
            links[key] += 1


def _put(graph: dict[str, Any], name: str, channel: int, value: Any) -> None:
    table = graph.setdefault(name, {})
    if channel in table or len(table) < _MAX_GRAPH:
        table[channel] = value


def _number(text: str | None) -> int | None:
    """A decimal number; None for none."""
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None
