"""Files made to harm: refused or left out with a message, nothing run, memory and time bounded. Bounds are made small."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
import struct
import tracemalloc
import zipfile
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from nsys_writer import Export

from tracekit.errors import LimitExceeded, TracekitError, UnusableInput
from tracekit.parsers import flight_recorder, identify, nccl_log, parse, parse_witness, source
from tracekit.parsers.safe_pickle import load_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

NCCL = "h0:900:900 [0] NCCL INFO "
CALL = (
    NCCL
    + "AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0x5 [nranks=2] stream 0x6\n"
)
INSPECTOR = (
    '{"header": {"id": "0x1", "rank": 0, "n_ranks": 2}, "metadata": {"hostname": "h", "pid": 1}, '
    '"coll_perf": {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 8, "coll_exec_time_us": 4}}\n'
)


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """Most bytes that Python held at once since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def short(text: str) -> bytes:
    """A text's opcodes."""
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def dump(*parts: bytes) -> bytes:
    """A pickle of {profiling_name: …, entries: …, whatever the parts make}: looks like a dump from outside."""
    return b"\x80\x02}(" + short("pg_config") + b"}" + b"".join(parts) + b"u."


TUPLES = b")q\x00" + b"".join(b"h%c" % i + b"h%c" % i + b"\x86q%c" % (i + 1) for i in range(60))
"""A tuple that holds a tuple twice, which holds a tuple twice, …: its hash takes 2^60 steps."""
LISTS = b"]q\x00" + b"".join(b"](h%c" % i + b"h%c" % i + b"eq%c" % (i + 1) for i in range(60))
"""The same of lists: its text takes 2^60 steps."""
BOMBS = {
    "tuple as a key": dump(b"}(", TUPLES, b"K\x01u") + b"",
    "tuple inside a tuple": dump(short("entries"), b"](", TUPLES, b"e"),
    "deep by turns": dump(short("entries"), b"](", b")" + b"\x85N0" * 5_000, b"e"),
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_tuples_that_unfold_without_end_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(LimitExceeded, match="tuple larger"):
        flight_recorder.parse(path)


@pytest.mark.parametrize("where", ["entry", "pg_id", "frames", "input_sizes", "process_group", "duration_ms"])
def test_lists_that_unfold_without_end_cost_nothing(tmp_path: Path, where: str) -> None:
    path = tmp_path / "dump"
    if where == "entry":
        entries = short("entries") + b"](" + LISTS + b"}" + short("x") + b"h\x3cs" + b"e"
    else:
        inside = b"](}" + short("line") + b"h\x3cse" if where == "frames" else b"h\x3c"
        entry = b"}(" + short("profiling_name") + short("nccl:all_reduce") + short(where) + inside + b"u"
        entries = short("entries") + b"](" + LISTS + b"0" + entry + b"e"
    path.write_bytes(dump(entries))
    (found,) = flight_recorder.parse(path)
    assert len(found.calls) == (where != "entry")


def test_one_entry_any_number_of_times_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MAX_ENTRIES", 1_000)
    entry = b"}(" + short("profiling_name") + short("nccl:all_reduce") + b"uq\x05"
    path = tmp_path / "dump"
    path.write_bytes(dump(short("entries"), b"](", entry, b"h\x05" * 1_000, b"e"))
    with pytest.raises(LimitExceeded, match="1,000 entries"):
        flight_recorder.parse(path)


def test_one_list_of_members_in_all_groups_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MAX_SEATS", 1_000)
    ranks = list(range(100))
    path = tmp_path / "dump"
    path.write_bytes(pickle.dumps({"pg_config": {str(i): {"name": str(i), "ranks": ranks} for i in range(20)}}, 2))
    with pytest.raises(LimitExceeded, match="members of groups"):
        flight_recorder.parse(path)


def test_shared_objects_of_honest_dumps_are_read(tmp_path: Path) -> None:
    group, frame = ("7", "tp"), {"name": "f", "filename": "a.py", "line": 3}
    told = [{"process_group": group, "frames": [frame] * 3, "profiling_name": "nccl:all_reduce"} for _ in range(500)]
    for protocol in (2, 4):
        assert load_plain(pickle.dumps(told, protocol), tmp_path) == told


@pytest.mark.parametrize("line", [CALL, INSPECTOR], ids=["log", "inspector"])
@pytest.mark.parametrize("packed", [False, True])
def test_lines_of_many_megabytes(
    tmp_path: Path, peak: Callable[[], int], line: str, *, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_RATIO", 10_000)
    path = tmp_path / "x"
    with gzip.open(path, "wb") if packed else path.open("wb") as out:
        out.write(line.encode())
        for _ in range(32):
            out.write(b"x" * (1 << 20))
        out.write(b"\n" + line.encode())
    (found,) = parse_witness(path)
    assert len(found.calls) == 2
    assert sum(h.count for h in found.health) == 1
    assert peak() < 16 << 20


@pytest.mark.parametrize(
    "line", [CALL, INSPECTOR, '{"schema": "1.1.1-chakra.0.0.4", "nodes": [', '{"comm_lib_version": "'], ids="linf"
)
def test_bombs_of_gzip(tmp_path: Path, peak: Callable[[], int], monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(source, "RATIO_FLOOR", 4 << 20)
    monkeypatch.setattr(source, "MAX_RATIO", 40)
    path = tmp_path / "x"
    with gzip.open(path, "wb") as out:
        out.write(line.encode())
        for _ in range(64):
            out.write(b" " * (1 << 20))
    with pytest.raises(LimitExceeded, match="bomb"):
        parse_witness(path)
    assert peak() < 24 << 20


def test_archives_are_named_and_not_opened(tmp_path: Path, peak: Callable[[], int]) -> None:
    path = tmp_path / "x.json"
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("t.json", b" " * (32 << 20))
    path.write_bytes(raw.getvalue())
    tracemalloc.reset_peak()
    assert identify(path).name == "zip"
    with pytest.raises(UnusableInput, match="unpack it"):
        parse(path)
    assert peak() < 4 << 20


def hostile_sqlite(path: Path, *statements: str) -> Path:
    export = Export()
    export.kernel("gemm", 10, 5)
    export.write(path)
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


ENDLESS = 'WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x AS "end", 59 AS eventType FROM n'


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE VIEW NVTX_EVENTS AS {ENDLESS}",
        f"CREATE VIEW DYNAMIC_NVTXPAYLOAD_DATATYPE_1_2_3 AS SELECT start AS eventId FROM ({ENDLESS})",
        "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, eventType)",
        "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END",
        'CREATE TABLE "NVTX_EVENTS" ("start" INT, "end" INT, "eventType" INT GENERATED ALWAYS AS (59) VIRTUAL)',
        'CREATE TABLE "x\'); DROP TABLE StringIds; --" (a INT)',
    ],
)
def test_nothing_of_a_database_is_run(tmp_path: Path, statement: str) -> None:
    path = hostile_sqlite(tmp_path / "x", statement)
    before = path.read_bytes()
    (trace,) = parse(path)
    assert [trace.names[i] for i in trace.device.name.tolist()] == ["gemm"]
    assert path.read_bytes() == before


def test_cells_of_a_database_are_bounded(tmp_path: Path) -> None:
    path = hostile_sqlite(
        tmp_path / "x",
        'CREATE TABLE NVTX_EVENTS ("start" INT, "end" INT, eventType INT, text TEXT, globalTid INT)',
        "INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, zeroblob(100000000), 1)",
    )
    with pytest.raises(TracekitError, match="SQLite"):
        parse(path)


def test_a_log_of_endless_kinds_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line another communicator, another buffer, another text of a choice."""
    monkeypatch.setattr(nccl_log, "_MAX_SHAPES", 500)
    path = tmp_path / "x"
    path.write_text("".join(CALL.replace("comm 0x5", f"comm 0x{i:x}") for i in range(2_000)))
    with pytest.raises(LimitExceeded, match="kinds of calls"):
        parse_witness(path)
    monkeypatch.setattr(nccl_log, "_MAX_BUFFERS", 100)
    path.write_text("".join(CALL.replace("sendbuff 0x1", f"sendbuff 0x{i:x}") for i in range(2_000)))
    (found,) = parse_witness(path)
    assert len(found.calls) == 2_000
    assert sum("sendbuff" in c.extra for c in found.calls) == 100


@pytest.mark.parametrize("text", ['{"a":' * 50_000, "[" * 500_000, '{"traceEvents": [' + "{" * 200_000], ids="dlt")
def test_deep_json_is_a_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(TracekitError) as refused:
        parse(path) if identify(path).readable else parse_witness(path)
    assert str(path) in str(refused.value)


def test_text_of_a_file_is_never_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump, a log and a trace that name files of this machine: none is opened."""
    from pathlib import Path as AnyPath

    secret = tmp_path / "secret"
    secret.write_text("x")
    opened: list[str] = []
    whole: Callable[..., AbstractContextManager[Any]] = AnyPath.open
    monkeypatch.setattr(AnyPath, "open", lambda self, *a, **k: (opened.append(str(self)), whole(self, *a, **k))[1])
    frame = {"name": "f", "filename": str(secret), "line": 1}
    (tmp_path / "dump").write_bytes(pickle.dumps({"entries": [{"profiling_name": "nccl:send", "frames": [frame]}]}, 2))
    (tmp_path / "log").write_text(CALL + NCCL + f"NCCL_TOPO_FILE set by environment to {secret}\n")
    (tmp_path / "et").write_text(
        json.dumps(
            {
                "schema": "1.1.1",
                "nodes": [{"id": 1, "name": "a", "attrs": [{"name": "kernel_file", "value": str(secret)}]}],
            }
        )
    )
    for name in ("dump", "log", "et"):
        parse_witness(tmp_path / name)
    assert opened
    assert str(secret) not in opened
