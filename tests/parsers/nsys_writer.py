"""Write small Nsight Systems exports: SQLite files with the documented tables."""

from __future__ import annotations

import json
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = 1_767_189_312_000_000_000
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, globalPid INT, demangledName INT, shortName INT",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT, srcDeviceId INT, dstDeviceId INT",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT, memKind INT, value INT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INT, end INT, eventClass INT, globalTid INT, correlationId INT, nameId INT, returnValue INT",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, graphId INT, graphExecId INT",
    "NVTX_EVENTS": "start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT, endGlobalTid INT, domainId INT, uint64Value INT, jsonText TEXT, jsonTextId INT, binaryData BLOB, eventId INT",
    "NVTX_EVENTS_PAYLOAD_SCHEMAS": "eventId INT, globalPid INT, domainId INT, payloadSchemaID INT",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId INT, schemaId INT, idx INT, type INT, name TEXT, offset INT",
    "MPI_RANKS": "globalTid INT, rank INT",
    "ThreadNames": "nameId INT, globalTid INT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INT, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "id INT, name TEXT, totalMemory INT, smCount INT",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INT, devStateName TEXT, name TEXT, nameEnum INT, value TEXT",
}
TYPES = {"NCCL communicator ID": 18, "Message size [bytes]": 22}
"""Types of fields as NVTX numbers them: uint64, size_t; all others are int."""
SCHEMA = {"NCCL communicator ID": 0, "Message size [bytes]": 8, "Root": 16, "Peer rank": 16}
INIT_SCHEMA = {"NCCL communicator ID": 0, "No. of ranks": 8, "Rank": 12, "CUDA device": 16}


def signed(value: int) -> int:
    """An unsigned 64-bit value as SQLite holds it."""
    return value - (1 << 64) if value >> 63 else value


def pid(process: int) -> int:
    return process << 24


@dataclass
class Export:
    """Collects rows; `write` makes the file, with only those tables that have rows."""

    payloads: str = "json"
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def text(self, value: str) -> int:
        return self.texts.setdefault(value, len(self.texts) + 1)

    def kernel(
        self, name: str, ts: int, dur: int, *, process: int = 900, device: int = 0, stream: int = 7, corr: int = 1
    ) -> None:
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=ts, end=ts + dur, deviceId=device, streamId=stream, correlationId=corr,
                 globalPid=pid(process), demangledName=self.text(name), shortName=self.text("short"))  # fmt: skip

    def launch(self, ts: int, dur: int, corr: int, *, process: int = 900, name: str = "cudaLaunchKernel_v7000") -> None:
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=ts, end=ts + dur, globalTid=pid(process) + process,
                 correlationId=corr, nameId=self.text(name))  # fmt: skip

    def range(
        self, text: str, ts: int, dur: int | None, *, process: int = 900, domain: int = 0, kind: int = 59, **more: Any
    ) -> None:
        where = {"textId": self.text(text)} if len(self.rows.get("NVTX_EVENTS", ())) % 2 else {"text": text}
        self.add("NVTX_EVENTS", start=ts, end=None if dur is None else ts + dur, eventType=kind,
                 globalTid=pid(process) + process, domainId=domain, **where, **more)  # fmt: skip

    def nccl(self, name: str, ts: int, dur: int, payload: dict[str, int], *, process: int = 900) -> None:
        """A range of NCCL's own, its payload in the form asked for."""
        more: dict[str, Any] = {}
        init = "Rank" in payload
        if self.payloads == "json":
            more["jsonText"] = json.dumps({"Payload": {k: signed(v) for k, v in payload.items()}})
        elif self.payloads == "json-id":
            more["jsonTextId"] = self.text(json.dumps({k: str(v) for k, v in payload.items()}))
        elif self.payloads.startswith("binary"):
            schema = INIT_SCHEMA if init else SCHEMA
            body = bytearray(24)
            for key, value in payload.items():
                struct.pack_into(
                    "<Q" if schema[key] < 8 or (schema[key] == 8 and not init) else "<i", body, schema[key], value
                )
            number = 7 if init else 8
            form = "<4Q" if self.payloads == "binary-wide" else "<IIIIQQ"
            words: tuple[int, ...] = (3, 0, number, 0, len(body), 32 + len(body))
            if self.payloads == "binary-wide":
                words = (3, number, len(body), 1)
            more["binaryData"] = struct.pack(form, *words) + bytes(body)
        elif self.payloads == "dynamic":
            more["eventId"] = len(self.rows.get("NVTX_EVENTS", ())) + 1
            number = 7 if init else 8
            fields = INIT_SCHEMA if init else SCHEMA
            table = f"DYNAMIC_NVTXPAYLOAD_DATATYPE_{pid(process)}_3_{number}"
            COLUMNS.setdefault(table, "eventId INT, " + ", ".join(f'"{f}" INT' for f in fields))
            self.add(table, eventId=more["eventId"], **{k: signed(v) for k, v in payload.items()})
            self.add("NVTX_EVENTS_PAYLOAD_SCHEMAS", eventId=more["eventId"], globalPid=pid(process), domainId=3,
                     payloadSchemaID=number)  # fmt: skip
        self.range(name, ts, dur, process=process, domain=3, **more)

    def write(self, path: Path) -> Path:
        if self.payloads.startswith("binary"):
            for number, schema in ((8, SCHEMA), (7, INIT_SCHEMA)):
                for i, (name, offset) in enumerate(schema.items()):
                    self.add(
                        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                        domainId=3,
                        schemaId=number,
                        idx=i,
                        type=TYPES.get(name, 5),
                        name=name,
                        offset=offset,
                    )
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
            db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in self.texts.items()])
            for table, rows in self.rows.items():
                spelled = COLUMNS[table].replace("end INT", '"end" INT').replace("start INT", '"start" INT')
                db.execute(f"CREATE TABLE {table} ({spelled})")
                for row in rows:
                    names = ", ".join(f'"{k}"' for k in row)
                    db.execute(
                        f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values())
                    )
            db.commit()
        return path
