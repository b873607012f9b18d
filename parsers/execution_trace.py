"""PyTorch execution traces (ExecutionTraceObserver, Chakra host traces, ET+) → `Witness`.

What a trace knows: every communication call in order of issue, with sizes, split lists that are never cut, groups and
the operators around it. It has no times of its own (ET+ carries those of a profiler). Its `rf_id` is the
`Record function id` of the Kineto trace that was recorded with it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import UnusableInput
from tracekit.model import HealthEntry, TraceMeta, Witness, WitnessCall, WitnessGroup
from tracekit.parsers.et_nodes import Node, Nodes
from tracekit.parsers.memory import without_gc

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "execution-trace"
RECORD = "record_param_comms"
GROUPS = "## process_group:init ##"
_OPERATOR = re.compile(r"_?c10d(?:_functional\w*)?::")
_OWN = re.compile(rf"{RECORD}$|{_OPERATOR.pattern}|\[pytorch\||## ")
"""Nodes that are the call itself or only hold threads: no scopes."""
_TENSOR = re.compile(r"Tensor\(([^()]+)\)")
_SCHEMA = re.compile(r'"schema"\s*:\s*"([^"]{1,60})"')
_IDLE = frozenset({"wait", "init"})
"""Records that move nothing; the rank they state is 0."""
_LANDMARK = re.compile(r"autograd::engine::evaluate_function|Optimizer\.step|ProfilerStep#\d")
_DEPTH = 1000
_MAX_RANKS = 1 << 20
_UNIX_US = 10**15
_ROOTED = re.compile(r"broadcast|reduce(?!_?scatter)|gather(?!_?into)|scatter", re.IGNORECASE)
_ALL = re.compile(r"all_?(?:reduce|gather|to)|reduce_?scatter", re.IGNORECASE)
_P2P = re.compile(r"_?(send|recv)", re.IGNORECASE)


class _Reading:
    """One file: tree of nodes, calls, groups."""

    def __init__(self, path: Path, *, strict: bool) -> None:
        self.nodes = Nodes(path, strict=strict)
        self.above: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.known: dict[str, str] = {}
        self.found: list[tuple[int, WitnessCall]] = []
        self.groups: dict[str, WitnessGroup] = {}
        self.told: list[list[Any]] = []
        self.landmarks: list[tuple[int, str]] = []
        self.twice = 0

    def read(self) -> None:
        """Walk over all nodes."""
        for node in self.nodes:
            name = self.known.setdefault(node.name, node.name)
            if node.id in self.names:
                self.twice += 1
                continue
            self.names[node.id], self.above[node.id] = name, node.above()
            if name == RECORD:
                self._record(node)
            elif name == GROUPS:
                self._declared(node)
            elif _OPERATOR.match(name):
                self._operator(node)
            elif _LANDMARK.match(name):
                self.landmarks.append((node.id, name))

    # ------------------------------------------------------------------ calls

    def _record(self, node: Node) -> None:
        """A record: [tensors], sequence number, group, rank, operation, splits, start, stride, size."""
        values, shapes, types, made = node.arguments()
        facts = node.facts()
        at = types.index("String") if "String" in types else -1
        op = facts.get("collective_name")
        if not isinstance(op, str) and 0 <= at < len(values):
            op = values[at]
        if not isinstance(op, str) or at < 3:
            return
        place = values[at - 1]
        group = self._group(values[at - 2], facts, _ints(values[at + 3 :]))
        number, p2p = _sequence(values[at - 3], op)
        ins, outs = _shapes(shapes[: at - 3]), _shapes(made)
        call = WitnessCall(
            op, group.key if group is not None else None, None if p2p else number, number if p2p else None,
            record=node.id, is_p2p=p2p, in_sizes=ins, out_sizes=outs, in_nelems=_count(facts.get("in_msg_nelems")),
            out_nelems=_count(facts.get("out_msg_nelems")), dtype=_dtype(facts.get("dtype"), types[: at - 3]),
        )  # fmt: skip
        call.in_splits = _list(facts.get("in_split_size"), values, at + 1)
        call.out_splits = _list(facts.get("out_split_size"), values, at + 2)
        if type(place) is int and place >= 0:
            self._seat(call, group, place)
        self._add(node, facts, call)

    def _seat(self, call: WitnessCall, group: WitnessGroup | None, place: int) -> None:
        """The record's rank is the peer, the root, or this process' own place in the group."""
        if _P2P.match(call.op_raw):
            call.peer = place
        elif _ROOTED.search(call.op_raw) and not _ALL.search(call.op_raw):
            call.root = place
        elif group is not None and group.own is None and call.op_raw not in _IDLE:
            group.own = place

    def _operator(self, node: Node) -> None:
        """An operator of torch.distributed; one above a record is that record's call (see `calls`)."""
        facts = node.facts()
        _, shapes, types, made = node.arguments()
        ins: list[list[int]] = []
        outs: list[list[int]] = []
        kinds = []
        arguments = _arguments(facts.get("op_schema"))
        for name, shape, kind in zip(arguments, shapes, types, strict=False):
            if "Tensor(" not in str(kind):
                continue
            both = _shapes([shape]) or []
            if "output" in name:
                outs += both
            else:
                ins += both
            kinds.append(kind)
        if not kinds:
            return  # waiting, and what moves no tensors
        call = WitnessCall(
            node.name, record=node.id, in_sizes=ins or None, out_sizes=outs or _shapes(made) or None,
            dtype=_dtype(None, kinds),
        )  # fmt: skip
        self._add(node, facts, call)

    def _add(self, node: Node, facts: dict[str, Any], call: WitnessCall) -> None:
        rf = facts.get("rf_id")
        call.rf_id = rf if type(rf) is int and rf > 0 else None
        thread = facts.get("tid")
        call.thread = str(thread) if type(thread) is int else None
        if isinstance(node.ts, int | float) and node.ts > _UNIX_US:
            call.created_ns = round(node.ts * 1000)
        self.found.append((node.id, call))

    def calls(self) -> list[WitnessCall]:
        """Calls in order of their ids (as they began), without operators that hold a call themselves."""
        self.found.sort(key=lambda pair: pair[0])
        ids = {number for number, _ in self.found}
        covered = {up for number in ids for up in self._over(number) if up in ids}
        out = []
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        for number, call in self.found:
            if number in covered:
                continue
            around = tuple(reversed([self.names[up] for up in self._over(number) if up in self.names]))
            scopes = tuple(name for name in around if not _OWN.match(name))
            call.scopes = shared.setdefault(scopes, scopes)
            out.append(call)
        return out

    def _over(self, number: int) -> list[int]:
        """Enclosing nodes, innermost first; a circle ends where it began."""
        out: list[int] = []
        seen = {number}
        up = self.above.get(number, 0)
        while up and up not in seen and len(out) < _DEPTH:
            out.append(up)
            seen.add(up)
            up = self.above.get(up, 0)
        return out

    # ------------------------------------------------------------------ groups

    def _declared(self, node: Node) -> None:
        """The list of groups that the observer writes at its start, as JSON inside JSON."""
        values = node.arguments()[0]
        if not values or not isinstance(values[0], str):
            return
        try:
            listed = msgspec.json.decode(values[0])
        except (msgspec.DecodeError, RecursionError):
            return
        if isinstance(listed, list):
            self.told.append([g for g in listed if isinstance(g, dict)])

    def _group(self, named: Any, facts: dict[str, Any], numbers: list[int]) -> WitnessGroup | None:
        """Group of a record: by name, or (before torch 2.3) by its address in this process."""
        name, desc = facts.get("pg_name"), facts.get("pg_desc")
        if isinstance(named, list) and len(named) == 2:
            name, desc = (given or told for given, told in zip((name, desc), named, strict=True))
        size = _count(facts.get("pg_size"))
        start, stride = _number(facts.get("global_rank_start")), _number(facts.get("global_rank_stride"))
        if len(numbers) >= 3:
            start, stride = (n if told is None else told for n, told in zip(numbers, (start, stride), strict=False))
        if size is None and numbers:
            size = numbers[2] if len(numbers) >= 3 else numbers[-1]
        if isinstance(name, str) and name:
            key = name
        elif type(named) is int and named:
            key, name = f"group at {named:#x}", None
        else:
            return None
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = WitnessGroup(key, name, desc if isinstance(desc, str) and desc else None, size)
            group.ranks = _members(start, stride, size)
        return group

    def finish(self, meta: TraceMeta) -> list[WitnessGroup]:
        """Groups as declared, then those that only calls name; rank and world go to `meta`."""
        for listed in self.told:
            sizes = [n for g in listed if (n := _count(g.get("group_size"))) is not None and g.get("ranks") == []]
            world = max(sizes, default=None)
            for one in listed:
                self._declare(one, world)
            meta.world_size = meta.world_size or world
            if meta.world_size is not None:
                for group in self.groups.values():
                    if group.ranks is None and group.size == meta.world_size:
                        group.ranks = tuple(range(meta.world_size))
        seats = {g.ranks[g.own] for g in self.groups.values() if g.ranks and g.own is not None and g.own < len(g.ranks)}
        if len(seats) == 1:
            meta.rank = seats.pop()
        for group in self.groups.values():
            if meta.world_size is None and group.desc == "default_pg":
                meta.world_size = group.size
            if group.own is None and group.ranks and meta.rank in group.ranks:
                group.own = group.ranks.index(meta.rank)
        return list(self.groups.values())

    def _declare(self, one: dict[str, Any], world: int | None) -> None:
        name = one.get("pg_name")
        if not isinstance(name, str) or not name:
            return
        size, ranks = _count(one.get("group_size")), one.get("ranks")
        members: tuple[int, ...] | None = None
        if isinstance(ranks, list) and ranks and all(type(n) is int and 0 <= n < _MAX_RANKS for n in ranks):
            members = tuple(ranks)
        elif ranks == [] and size is not None and size == world:  # written empty for a group of all ranks
            members = tuple(range(size))
        group = self.groups.setdefault(name, WitnessGroup(name, name))
        desc, backend = one.get("pg_desc"), one.get("backend_config")
        group.desc = group.desc or (desc if isinstance(desc, str) and desc else None)
        group.backend = backend if isinstance(backend, str) and backend else None
        group.size, group.ranks = size or group.size, members or group.ranks


def _sequence(value: Any, op: str) -> tuple[int | None, bool]:
    """(number in the group, whether it counts point-to-point calls)."""
    p2p = _P2P.match(op) is not None
    if isinstance(value, list) and value:
        p2p = value[1] is True if len(value) > 1 else p2p
        value = value[0]
    return (value if type(value) is int and value >= 0 else None), p2p


def _ints(values: list[Any]) -> list[int]:
    return [v for v in values if type(v) is int]


def _number(value: Any) -> int | None:
    """A number as torch writes an unsigned one: -1 comes as 2^64 - 1."""
    return value if type(value) is int and value < 1 << 63 else -1 if type(value) is int else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _members(start: int | None, stride: int | None, size: int | None) -> tuple[int, ...] | None:
    """Ranks from start, stride and size, which are negative for an irregular group."""
    if start is None or size is None or start < 0 or not 0 < size <= _MAX_RANKS:
        return None
    if size == 1:
        return (start,)
    if stride is None or stride <= 0 or start + stride * size > _MAX_RANKS:
        return None
    return tuple(range(start, start + stride * size, stride))


def _shapes(value: Any, depth: int = 0) -> list[list[int]] | None:
    """Shapes of tensors, and of tensors in lists; None when there are none."""
    out: list[list[int]] = []
    for one in value if isinstance(value, list) else ():
        if isinstance(one, list) and all(type(n) is int for n in one):
            out.append(one)
        elif depth < 4:
            out += _shapes(one, depth + 1) or []
    return out or None


def _dtype(told: Any, types: list[Any]) -> str | None:
    """c10's name, or the C++ one that all tensors share."""
    if isinstance(told, str) and told:
        return told
    kinds = {kind for text in types if isinstance(text, str) for kind in _TENSOR.findall(text)}
    return kinds.pop() if len(kinds) == 1 else None


def _list(told: Any, values: list[Any], at: int) -> str | None:
    """A list of splits as text; None for an empty one, which stands for equal parts."""
    if isinstance(told, str) and re.fullmatch(r"\[[\d,\s]*\]", told):
        text = told
    elif at < len(values) and isinstance(values[at], list) and all(type(n) is int for n in values[at]):
        text = str(values[at])
    else:
        return None
    return text if re.search(r"\d", text) else None


def _arguments(schema: Any) -> list[str]:
    """Names of an operator's arguments, in order, from its schema."""
    if not isinstance(schema, str) or len(schema) > 4096:
        return []
    body = schema.partition("(")[2].partition(") ->")[0]
    return [part.strip().split(" ")[-1].split("=")[0] for part in body.split(", ") if part.strip() not in ("", "*")]


def parse(path: Path, *, strict: bool = False) -> list[Witness]:
    """Read one trace: one process. strict: refuse nodes that are not whole instead of counting them.

    Raises UnusableInput when it holds no nodes, BrokenInput (strict), LimitExceeded.
    """
    reading = _Reading(path, strict=strict)
    nodes, source = reading.nodes, reading.nodes.source
    with without_gc():
        reading.read()
        calls = reading.calls()
    if not reading.names:
        raise UnusableInput(
            f"{path}: the execution trace holds no whole node; record again with ExecutionTraceObserver"
        )
    schema = _SCHEMA.search(nodes.head[:4096].decode("utf-8", "replace"))
    version = schema[1] if schema else None
    meta = TraceMeta(
        str(path), file_bytes=source.file_bytes, json_bytes=source.read_bytes, compression=source.compression,
        era=f"execution trace {version or 'without a schema number'}",
    )  # fmt: skip
    out = Witness(meta, SOURCE, reading.finish(meta), calls, version=version, lost=0)
    out.landmarks = sorted(reading.landmarks)
    if not nodes.closed or source.damage:
        reason = source.damage or "the list of nodes has no end: the recording or a copy was cut"
        out.health.append(HealthEntry(reason, 1, "lost"))
        out.lost = None
    for kind, count in (("lost", nodes.lost), ("repaired", nodes.repaired)):
        if count:
            out.health.append(HealthEntry(f"nodes of the execution trace {kind}", count, kind, nodes.examples[kind]))
    if reading.twice:
        out.health.append(HealthEntry("node with a number that another node has (left out)", reading.twice, "lost"))
    return [out]
