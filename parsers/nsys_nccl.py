"""NCCL's own NVTX ranges in an Nsight Systems export: what each call moved, on which communicator, to whom.

A payload comes as JSON text, as bytes with a schema in the file, or in tables of its own. Without a payload (NCCL
before 2.25 tells the size at most) a range still names the operation.
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.model import CommArgs, ProcessGroup, TraceMeta, Witness, WitnessGroup
from tracekit.parsers.nccl_common import comm_hash, elements, resolve_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.parsers.nsys_db import Database

CALL = re.compile(r"nccl(AllReduce|AllGather|ReduceScatter|Reduce|Broadcast|Bcast|AlltoAll|Gather|Scatter|Send|Recv)")
INIT = re.compile(r"ncclComm(InitRank\w*|Split|Shrink|Grow)")
COMM, PARENT = "NCCL communicator ID", "Parent NCCL communicator ID"
SIZE, ROOT, PEER, RANK, RANKS = "Message size [bytes]", "Root", "Peer rank", "Rank", "No. of ranks"
_WIDE = frozenset({COMM, PARENT, SIZE})
_KNOWN = (COMM, PARENT, SIZE, ROOT, PEER, RANK, RANKS, "CUDA device", "Color", "Key", "Reduction operation")
_HEADER = 32
_DYNAMIC = re.compile(r"DYNAMIC_NVTXPAYLOAD_DATATYPE_-?\d+_\d+_-?\d+")
_FORMS = {5: "<i", 6: "<I", 9: "<q", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q"}
"""By type of the entry, as NVTX numbers them; the others are told by their names."""
_MAX_JSON = 1 << 16
_BY_SQUASHED = {re.sub(r"\W+", "", k).lower(): k for k in _KNOWN} | {"peer": PEER}
Payload = dict[str, int]


class Payloads:
    """Decodes payloads of one file; `damaged` counts those that could not be."""

    def __init__(self, db: Database) -> None:
        self.damaged = 0
        self._schemas: dict[tuple[int, int], list[tuple[int, str, str]]] = {}
        self._rows: dict[int, Payload] = {}
        table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
        if db.has(table, "domainId", "schemaId", "name", "offset"):
            columns = ("domainId", "schemaId", "name", "offset", "nameId", "type")
            texts = db.strings() if "nameId" in db.tables[table] else {}
            for domain, schema, name, offset, name_id, kind in db.select(table, columns):
                known = _BY_SQUASHED.get(_squash(name if isinstance(name, str) else texts.get(name_id, "")))
                if known is not None and all(isinstance(n, int) for n in (domain, schema, offset)):
                    form = _FORMS.get(kind, "<Q" if known in _WIDE else "<i")
                    self._schemas.setdefault((domain, schema), []).append((offset, known, form))
        for name in sorted(db.tables):
            if _DYNAMIC.fullmatch(name) and "eventId" in db.tables[name]:
                self._dynamic(db, name)

    def _dynamic(self, db: Database, table: str) -> None:
        """A table of payloads of one schema, a column a field (`nsys export --dynamic-tables=all`)."""
        known = {c: _BY_SQUASHED[_squash(c)] for c in sorted(db.tables[table]) if _squash(c) in _BY_SQUASHED}
        for event, *cells in db.select(table, ("eventId", *known)) if known else ():
            if isinstance(event, int):
                fields = dict(zip(known.values(), cells, strict=True))
                self._rows.setdefault(event, {}).update(_fields(fields))

    def decode(self, text: Any, binary: Any, event: Any = None) -> Payload:
        """Fields by NCCL's names; empty when there are none, or none that can be read. event: id of the NVTX event."""
        if isinstance(event, int) and event in self._rows:
            return self._rows[event]
        if isinstance(text, str) and text:
            if len(text) <= _MAX_JSON:
                try:
                    return dict(_fields(json.loads(text)))
                except (ValueError, RecursionError):
                    pass
            self.damaged += 1
        elif isinstance(binary, bytes) and binary:
            found = self._binary(binary)
            if found is not None:
                return found
            self.damaged += 1
        return {}

    def _binary(self, data: bytes) -> Payload | None:
        """A header of eight 32-bit or four 64-bit words names domain and schema, then come the fields."""
        for form in ("<4Q", "<4q"):
            if len(data) >= _HEADER:
                domain, schema = struct.unpack_from(form, data)[0], struct.unpack_from(form, data, 0)[1]
                if (schema_fields := self._schemas.get((domain, schema))) is not None:
                    return _at_offsets(data[_HEADER:], schema_fields)
        if len(data) >= _HEADER:
            words = struct.unpack_from("<8I", data)
            for domain, schema in ((words[0], words[2]), (words[0], words[4])):
                for key, schema_fields in self._schemas.items():
                    if key[0] == domain and key[1] & 0xFFFFFFFF == schema:
                        return _at_offsets(data[_HEADER:], schema_fields)
        return None


def _at_offsets(body: bytes, fields: list[tuple[int, str, str]]) -> Payload | None:
    out: Payload = {}
    for offset, name, form in fields:
        if offset < 0 or offset + struct.calcsize(form) > len(body):
            return None
        out[name] = struct.unpack_from(form, body, offset)[0]
    return out


def _squash(name: str) -> str:
    return re.sub(r"\W+|_", "", name).lower()


def _fields(value: Any, depth: int = 0) -> Iterable[tuple[str, int]]:
    """Known names with integers, wherever in the text they stand."""
    if not isinstance(value, dict) or depth > 4:
        return
    for key, inner in value.items():
        known = _BY_SQUASHED.get(_squash(str(key)))
        if known is None:
            yield from _fields(inner, depth + 1)
        elif isinstance(inner, int):
            yield known, inner
        elif isinstance(inner, str) and re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", inner):
            yield known, int(inner, 0)


class Process(Struct):
    """Communicators of one process: identity → (position, size)."""

    seats: dict[str, tuple[int, int]] = field(default_factory=dict)

    def join(self, payload: Payload) -> None:
        """Take the payload of an initialisation."""
        if COMM in payload and RANK in payload and RANKS in payload:
            self.seats[comm_hash(payload[COMM])] = payload[RANK], payload[RANKS]


def args_of(name: str, payload: Payload, process: Process) -> CommArgs:
    """One call as a communication record. `Message size` is the count of the call × its type's size: see `elements`."""
    op = CALL.match(name)
    kind = "Broadcast" if op is None or op[1] == "Bcast" else op[1]
    out = CommArgs(collective=kind)
    if COMM in payload:
        out.pg_name = comm_hash(payload[COMM])
        seat = process.seats.get(out.pg_name)
        if seat is not None:
            out.rank, out.group_size = seat
    size = payload.get(SIZE)
    if size is not None and size >= 0:
        both = elements(kind, size, out.group_size)
        out.payload_bytes = None if None in both else max(n for n in both if n is not None)
    if kind in ("Send", "Recv"):
        out.rank = payload.get(PEER)
    elif kind in ("Broadcast", "Reduce", "Gather", "Scatter"):
        out.rank = payload.get(ROOT)
    return out


def groups_of(
    processes: dict[int, Process], ranks: dict[int, int]
) -> dict[int, tuple[TraceMeta, tuple[ProcessGroup, ...]]]:
    """Rank (in the meta) and groups of each process; ranks: what the file states of them."""
    witnesses = {}
    for number, process in processes.items():
        seats = [WitnessGroup(h, size=n, own=own, comm_hash=h) for h, (own, n) in process.seats.items()]
        witnesses[number] = Witness(TraceMeta("", rank=ranks.get(number)), "nsys", seats)
    if any(p.seats for p in processes.values()):
        resolve_ranks([w for w in witnesses.values() if w.groups])
    return {
        number: (w.meta, tuple(ProcessGroup(g.key, None, g.size, g.ranks, "nccl") for g in w.groups))
        for number, w in witnesses.items()
    }
