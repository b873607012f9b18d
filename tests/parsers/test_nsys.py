"""Exports of Nsight Systems: the same timeline as a Kineto file gives the same analysis."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from kineto_writer import COMM, kernel, launch, op, us, write
from nsys_writer import EPOCH, Export, pid, signed

import tracekit as tk
from tracekit.errors import BrokenInput, ForeignFormat, TracekitError, UnusableInput
from tracekit.model import DeviceClass, HostCat
from tracekit.parsers import identify, parse
from tracekit.parsers.nsys_db import Database

if TYPE_CHECKING:
    from pathlib import Path

WORLD = 0xF000_0000_0000_0001
GEMM = "void gemm<float, 4>(int)"
RING = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
FORMS = ("json", "json-id", "binary", "binary-wide", "dynamic")


def twins(folder: Path, payloads: str = "json") -> tuple[Path, Path]:
    """A job of two ranks, once as one export and once as two Kineto files."""
    export = Export(payloads)
    (folder / "kineto").mkdir()
    for rank in range(2):
        events: list[dict[str, Any]] = []
        process = 900 + rank
        export.nccl(
            "ncclCommInitRankConfig",
            1,
            5,
            {"NCCL communicator ID": WORLD, "No. of ranks": 2, "Rank": rank},
            process=process,
        )
        events.append(op("aten::empty", 1, 5))
        for i in range(4):
            at = 1_000_000 + i * 100_000
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 900, "tid": 900,
                           "ts": us(at), "dur": us(90_000), "args": {"External id": 5000 + i}})  # fmt: skip
            export.range(f"ProfilerStep#{i}", at, 90_000, process=process)
            events += [
                launch(at + 20, 30, 10 * i + 1),
                kernel(GEMM, at + 5_000, 30_000 + rank * 7_000, corr=10 * i + 1, device=rank),
            ]
            export.launch(at + 20, 30, 10 * i + 1, process=process)
            export.kernel(GEMM, at + 5_000, 30_000 + rank * 7_000, process=process, device=rank, corr=10 * i + 1)
            comm = COMM | {"Process Group Description": "undefined", "Process Group Ranks": "[0, 1]"}
            del comm["Seq"], comm["Comms Id"]
            events += [op("record_param_comms", at + 100, 200, ext=900 + i, **comm, Rank=rank), launch(at + 150, 40, 10 * i + 2),
                       kernel(RING, at + 20_000, 40_000 + 1_000 * i, corr=10 * i + 2, stream=20, device=rank)]  # fmt: skip
            size = {"NCCL communicator ID": WORLD, "Message size [bytes]": 8192}
            export.nccl("ncclAllReduce", at + 100, 200, size, process=process)
            export.launch(at + 150, 40, 10 * i + 2, process=process)
            export.kernel(
                RING, at + 20_000, 40_000 + 1_000 * i, process=process, device=rank, stream=20, corr=10 * i + 2
            )
        group = {"pg_name": "7", "pg_desc": "undefined", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}
        told = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_count": 1, "pg_config": [group]}
        head = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": told, "baseTimeNanoseconds": EPOCH}
        write(folder / "kineto" / f"rank{rank}.json", events, head=head)
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=EPOCH)
    return export.write(folder / "job.sqlite"), folder / "kineto"


@pytest.mark.parametrize("payloads", FORMS)
def test_the_same_timeline_gives_the_same_analysis(tmp_path: Path, payloads: str) -> None:
    export, kineto = twins(tmp_path, payloads)
    one, other = tk.analyze(export, workers=1), tk.analyze(kineto, workers=1)
    assert one.document["totals"] == other.document["totals"]
    assert min(s["exposed_ns"] or 0 for s in one.arrow("by_strategy").to_pylist()) > 0
    for table in ("activities", "steps", "exposure", "by_strategy", "breakdown", "waiting"):
        assert one.arrow(table).num_rows == other.arrow(table).num_rows > 0
        differ = [
            c for c in one.arrow(table).column_names
            if one.arrow(table).column(c).to_pylist() != other.arrow(table).column(c).to_pylist()
        ]  # fmt: skip
        assert not {*differ} - {"group"}, table
    mine, theirs = one.arrow("collectives"), other.arrow("collectives")
    told = {"op_raw", "group_name", "group_desc", "in_nelems", "out_nelems", "dtype", "alternatives", "confidence"}
    differ = [c for c in mine.column_names if mine.column(c).to_pylist() != theirs.column(c).to_pylist()]
    assert set(differ) <= told  # NCCL tells bytes, not elements and type, and knows no names of groups
    assert mine.column("payload_bytes").to_pylist() == [8192] * 8


def test_ranks_come_from_the_communicator_of_all_processes(tmp_path: Path) -> None:
    export, _ = twins(tmp_path)
    traces = parse(export)
    assert identify(export).name == "nsys"
    assert [(t.meta.rank, t.meta.world_size, t.meta.part) for t in traces] == [(0, 2, 0), (1, 2, 1)]
    assert [g.ranks for t in traces for g in t.meta.groups] == [(0, 1), (0, 1)]
    assert traces[0].meta.groups[0].name == f"{WORLD:#x}"
    assert traces[0].meta.base_ns == EPOCH
    assert traces[0].window_ns[0] == EPOCH + 1


def test_ranks_of_mpi(tmp_path: Path) -> None:
    export = Export()
    for process, rank in ((900, 5), (901, 4)):
        export.kernel(GEMM, 10, 5, process=process)
        export.add("MPI_RANKS", globalTid=pid(process) + process, rank=rank)
    assert [t.meta.rank for t in parse(export.write(tmp_path / "x"))] == [5, 4]


def test_ranks_of_mpi_that_tell_nothing_apart(tmp_path: Path) -> None:
    export = Export()
    for process in (900, 901):
        export.kernel(GEMM, 10, 5, process=process)
        export.add("MPI_RANKS", globalTid=pid(process), rank=0)
    traces = parse(export.write(tmp_path / "x"))
    assert [t.meta.rank for t in traces] == [None, None]
    assert any("MPI ranks" in h.reason for h in traces[0].health)


def test_missing_tables(tmp_path: Path) -> None:
    export = Export()
    export.kernel(GEMM, 10, 5)
    (trace,) = parse(export.write(tmp_path / "kernels only"))
    assert (len(trace.device), len(trace.host), trace.meta.base_ns) == (1, 0, None)
    export = Export()
    export.range("step", 10, 5)
    (trace,) = parse(export.write(tmp_path / "ranges only"))
    assert (len(trace.device), len(trace.host)) == (0, 1)
    export = Export()
    export.add("NVTX_EVENTS", start=1, eventType=34, text="mark")
    with pytest.raises(UnusableInput, match="--trace=cuda,nvtx"):
        parse(export.write(tmp_path / "marks only"))


def test_missing_columns(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with closing(sqlite3.connect(path)) as db:
        db.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ("start" INT, "end" INT, globalPid INT, shortName INT)')
        db.execute("CREATE TABLE StringIds (id INT, value TEXT)")
        db.execute("INSERT INTO StringIds VALUES (3, 'gemm')")
        db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 30, {pid(5)}, 3)")
        db.commit()
    (trace,) = parse(path)
    assert [trace.names[i] for i in trace.device.name.tolist()] == ["gemm"]
    assert trace.device.device.tolist() == [-1]


def test_rows_of_every_kind(tmp_path: Path) -> None:
    export = Export()
    row = {"deviceId": 0, "streamId": 7, "correlationId": 3, "globalPid": pid(900)}
    copy = {"bytes": 64, "srcKind": 1, "dstKind": 2}
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=10, end=20, **row, **copy, copyKind=1)
    copy |= {"srcKind": 2}
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=30, end=40, **row, **copy, copyKind=8, srcDeviceId=0, dstDeviceId=0)
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=50, end=60, **row, **copy, copyKind=8, srcDeviceId=0, dstDeviceId=1)
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=70, end=80, **row, **copy, copyKind=10)
    export.add("CUPTI_ACTIVITY_KIND_MEMSET", start=90, end=95, **row, bytes=8, memKind=2)
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=100, end=150, **row, graphId=4)
    (trace,) = parse(export.write(tmp_path / "x"))
    d = trace.device
    assert [trace.names[i] for i in d.name.tolist()] == [
        "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)",
        "Memcpy PtoP (Device -> Device)", "Memset (Device)", "CUDA graph 4",
    ]  # fmt: skip
    assert d.peer.tolist() == [0, 0, 1, 1, 0, 0]
    assert d.cls.tolist() == [DeviceClass.MEMCPY] * 4 + [DeviceClass.MEMSET, DeviceClass.KERNEL]
    assert d.nbytes.tolist() == [64, 64, 64, 64, 8, -1]
    assert [h.example for h in trace.health] == ["record with nsys profile --cuda-graph-trace=node"]


def test_ranges(tmp_path: Path) -> None:
    export = Export()
    export.kernel(GEMM, 10, 90)
    export.range("aten::mm, seq = 5, op_id = 12, sizes = [[2, 3]]", 5, 10)
    export.range("forward, step 3", 15, None)
    export.range("pushed elsewhere", 20, 5, endGlobalTid=pid(900) + 77)
    export.range("mark", 25, 0, kind=34)
    export.add("ThreadNames", nameId=export.text("pt_main"), globalTid=pid(900) + 900)
    (trace,) = parse(export.write(tmp_path / "x"))
    rows = [
        (trace.names[n], HostCat(c), d)
        for n, c, d in zip(trace.host.name.tolist(), trace.host.cat.tolist(), trace.host.dur.tolist(), strict=True)
    ]
    assert rows == [
        ("aten::mm", HostCat.CPU_OP, 10), ("forward, step 3", HostCat.ANNOTATION, 85), ("pushed elsewhere", HostCat.ANNOTATION, 5),
    ]  # fmt: skip
    assert (trace.tracks[0].pid, trace.tracks[0].tid, trace.tracks[0].name) == ("900", "900", "pt_main")
    assert sorted(h.reason.split(",")[0] for h in trace.health) == [
        "NVTX range that ends on another thread (kept on the first)", "NVTX range without an end",
    ]  # fmt: skip


def test_calls_of_nccl(tmp_path: Path) -> None:
    export = Export()
    export.kernel(GEMM, 1_000, 5)
    export.add("NVTX_EVENTS", start=0, eventType=75, text="NCCL", domainId=3, globalTid=pid(900))
    export.add("NVTX_EVENTS", start=0, eventType=75, text="mine", domainId=4, globalTid=pid(900))
    export.nccl("ncclCommInitRank", 1, 1, {"NCCL communicator ID": 9, "No. of ranks": 4, "Rank": 2})
    for i, (name, more) in enumerate(
        (("AllGather", {}), ("ReduceScatter", {}), ("AlltoAll", {}), ("Send", {"Peer rank": 3}), ("Bcast", {"Root": 1}))
    ):
        export.nccl(f"nccl{name}", 10 + 10 * i, 5, {"NCCL communicator ID": 9, "Message size [bytes]": 100, **more})
    export.nccl("ncclAllGather", 80, 5, {"NCCL communicator ID": 8, "Message size [bytes]": 100})
    export.range("ncclAllReduce", 90, 5, domain=4)
    export.range("ncclAllReduce", 95, 2, domain=3, jsonText="{broken")
    (trace,) = parse(export.write(tmp_path / "x"))
    found = [(c.collective, c.payload_bytes, c.rank, c.group_size, c.pg_name) for c in trace.comm]
    assert found == [
        ("AllGather", 400, 2, 4, "0x9"), ("ReduceScatter", 400, 2, 4, "0x9"), ("AlltoAll", 400, 2, 4, "0x9"),
        ("Send", 100, 3, 4, "0x9"), ("Broadcast", 100, 1, 4, "0x9"), ("AllGather", None, None, None, "0x8"),
        ("AllReduce", None, None, None, None),
    ]  # fmt: skip
    assert trace.meta.rank is None
    assert [(h.reason, h.count) for h in trace.health] == [("NCCL payload that cannot be read", 1)]
    assert sum(trace.names[n] == "ncclAllReduce" for n in trace.host.name.tolist()) == 1


def test_identities_are_unsigned() -> None:
    assert signed(WORLD) < 0


def test_rows_without_times_are_counted_or_refused(tmp_path: Path) -> None:
    export = Export()
    export.kernel(GEMM, 10, 5)
    export.kernel(GEMM, 20, -5)
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start="soon", end=7, globalPid=pid(900), demangledName=1)
    path = export.write(tmp_path / "x")
    (trace,) = parse(path)
    assert len(trace.device) == 1
    assert [(h.reason, h.count, h.severity) for h in trace.health] == [("kernel without a usable time", 2, "lost")]
    with pytest.raises(BrokenInput, match="usable time"):
        parse(path, strict=True)


def test_nothing_in_the_file_is_run(tmp_path: Path) -> None:
    """Views, virtual tables and triggers are passed over, the file is not written to."""
    path = tmp_path / "x"
    with closing(sqlite3.connect(path)) as db:
        db.execute('CREATE TABLE real_ ("start" INT, "end" INT, globalPid INT)')
        db.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM real_")
        db.execute('CREATE TABLE NVTX_EVENTS ("start" INT, "end" INT, eventType INT)')
        db.execute("CREATE TRIGGER t AFTER INSERT ON real_ BEGIN DELETE FROM real_; END")
        db.commit()
    before = path.read_bytes()
    with Database(path) as db:
        assert set(db.tables) == {"real_", "NVTX_EVENTS"}
    with pytest.raises(UnusableInput):
        parse(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x"]


def test_damaged_and_foreign_databases(tmp_path: Path) -> None:
    export, _ = twins(tmp_path)
    data = export.read_bytes()
    for i, broken in enumerate((data[: len(data) // 2], data[:4096] + bytes(len(data) - 4096), data[:100], data[:16])):
        path = tmp_path / f"broken{i}"
        path.write_bytes(broken)
        with pytest.raises(TracekitError) as refused:
            parse(path)
        assert refused.value.exit_code == 3
        assert str(path) in str(refused.value)
    spelled = tmp_path / "spelled"  # SQLite's message quotes the damaged text, which is no UTF-8
    spelled.write_bytes(data.replace(b"CREATE TABLE NVTX_EVENTS (", b"CREATE TABLE \xbd\x9f\xc8\xff \xbd\x9f\xc8 (", 1))
    with pytest.raises(TracekitError):
        Database(spelled)
    other = tmp_path / "other"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(ForeignFormat, match="no Nsight Systems export"):
        parse(other)
    (tmp_path / "x.gz").write_bytes(gzip.compress(data))
    with pytest.raises(ForeignFormat, match="decompress"):
        parse(tmp_path / "x.gz")


@pytest.mark.shared
def test_a_report_says_how_to_export_it(shared: Path) -> None:
    path = next((shared / "corpus").glob("FlagOpen+FlagGems/**/*.nsys-rep"))
    with pytest.raises(ForeignFormat, match="nsys export --type sqlite"):
        parse(path)
