"""Files are recognised by content alone, and each refusal says what the file is and what to do."""

from __future__ import annotations

import gzip
import json
import pickle
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from kineto_writer import job, op, text, us, write

from tracekit.errors import ForeignFormat, TracekitError
from tracekit.parsers import identify, parse

if TYPE_CHECKING:
    from pathlib import Path


def chrome(*events: dict[str, Any], root: str = "object") -> bytes:
    return json.dumps(list(events) if root == "list" else {"traceEvents": list(events)}).encode()


def span(name: str, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0, **more}


NODE = {"id": 1, "name": "x", "ctrl_deps": 0, "inputs": {"values": []}}
FR = {"record_id": 0, "collective_seq_id": 1, "profiling_name": "nccl:all_reduce", "process_group": ["0", "tp"]}
INSPECTOR = {"header": {"id": "0x9f", "rank": 3}, "coll_perf": {"coll": "AllReduce", "coll_sn": 55}}

FOREIGN: list[tuple[str, bytes]] = [
    ("rocprof", json.dumps({"rocprofiler-sdk-tool": [{"metadata": {}}]}).encode()),
    ("execution-trace", json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [NODE]}).encode()),
    ("execution-trace", json.dumps({"nodes": [NODE]}).encode()),
    ("nccl-inspector", b"\n".join([json.dumps(INSPECTOR).encode()] * 3)),
    ("flight-recorder", json.dumps({"version": "2.10", "entries": [FR]}).encode()),
    ("flight-recorder", json.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}}).encode()),
    ("flight-recorder", pickle.dumps({"version": "2.9", "pg_config": {}, "entries": [FR]}, protocol=2)),
    ("flight-recorder", pickle.dumps([FR], protocol=2)),
    ("pickle", pickle.dumps({"a": 1}, protocol=4)),
    ("nccl-profiler", b'[\n{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 1, "args": {"CommHash": "7"}},\n'),
    ("nccl-profiler", b'{"type":"CollApi","func":"AllReduce","commId":8612235153520363772}\n' * 3),
    ("nccl-log", b"0: h1:41:90 [1] NCCL INFO AllReduce: opCount 1a sendbuff 0x7f00 comm 0x55d0 [nranks=8]\n"),
    ("horovod", b'[\n{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},\n'),
    ("byteps", b'[{"ph": "B", "pid": 0, "ts": 8974675, "name": "INITCOMMUNICATION"}, '),
    ("viztracer", chrome(span("f", cat="fee"))),
    ("straggler-timeline", chrome(span("forward-compute", cat="forward-compute"), root="list")),
    ("pippy", chrome(span("F_0,1"), root="list")),
    ("msprof", chrome(span("hcom_allReduce_"), root="list")),
    ("msprof", b"step_num,start_point,end_point,total\n1,2,3,4\n"),
    ("aiu", json.dumps([{"ph": "B", "name": "add", "attr": {"TS1": "1", "Power": "2"}, "ts": 1}]).encode()),
    ("legacy-profiler", chrome(span("mul", pid="CPU functions"), root="list")),
    ("memory-timeline", chrome({"ph": "C", "name": "Used Mem", "pid": "rank0", "ts": 1, "args": {"used": 1.0}})),
    ("chrome", chrome(span("work", cat="mine"))),
    ("json", b'{"a": 1}'),
    ("csv", b"a,b,c\n1,2,3\n"),
    ("text", b"hello\nworld\n"),
    ("empty", b""),
    ("empty", b"\n \n"),
    ("sqlite", b"SQLite format 3\x00" + bytes(100)),
    ("parquet", b"PAR1" + bytes(100)),
    ("zip", b"PK\x03\x04" + bytes(100)),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(100)),
    ("xz", b"\xfd7zXZ\x00" + bytes(100)),
    ("nsys-rep", b"NVIDIA Tegra Profiler Report 2024" + bytes(100)),
    ("xplane", b"\x0a\xa1\xf0\x08\x12\x0e/host:metadata" + bytes(range(9)) * 40),
    ("perfetto", b"\x0a\x04\x08\x01\x10\x02" * 40),
    ("chakra", b"\x10\x0a\x06schema\x12\x051.0.1" + bytes(range(9)) * 9),
    ("binary", bytes(range(32)) * 100),
]


@pytest.mark.parametrize(("name", "data"), FOREIGN, ids=[f"{n}-{i}" for i, (n, _) in enumerate(FOREIGN)])
@pytest.mark.parametrize("suffix", [".json", ".gz", ""])
def test_foreign_files_are_named(tmp_path: Path, name: str, data: bytes, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(gzip.compress(data) if suffix == ".gz" else data)
    found = identify(path)
    assert (found.name, found.readable) == (name, False)
    assert found.compression == ("gzip" if suffix == ".gz" else None)
    with pytest.raises(ForeignFormat) as refused:
        parse(path)
    message = str(refused.value)
    assert str(path) in message
    assert found.title in message
    assert len(found.advice) > 10


def test_archives_say_to_unpack(tmp_path: Path) -> None:
    inner = write(tmp_path / "trace.json", job())
    for mode, name in (("w", "a.tar"), ("w:gz", "a.tar.gz")):
        with tarfile.open(tmp_path / name, mode) as tar:  # type: ignore[call-overload]
            tar.add(inner, "trace.json")
        with pytest.raises(ForeignFormat, match="unpack"):
            parse(tmp_path / name)


@pytest.mark.parametrize("name", ["trace.log", "trace", "trace.sqlite", "trace.gz"])
@pytest.mark.parametrize("layout", ["classic", "lines", "compact", "indent4"])
def test_kineto_is_read_under_any_name(tmp_path: Path, name: str, layout: str) -> None:
    path = tmp_path / name
    path.write_text(text(job(), {"schemaVersion": 1}, {}, layout))
    assert identify(path).readable
    assert len(parse(path)[0].device) == 68


def test_words_of_other_tools_inside_a_kineto_file_do_not_mislead(tmp_path: Path) -> None:
    events = [
        *job(),
        *(op(w, 5, 5) for w in ("NEGOTIATE_x", "hcom_allReduce", "F_0,1", "NCCL INFO x", "byteps", "CUDA")),
    ]
    head = {"schemaVersion": 1, "note": "NCCL INFO NEGOTIATE_ hcom_", "deviceProperties": []}
    assert identify(write(tmp_path / "a.json", events, head=head)).name == "kineto"


def test_many_metadata_rows_before_the_first_activity(tmp_path: Path) -> None:
    rows = [
        {"name": "thread_name", "ph": "M", "ts": us(0), "pid": 1, "tid": i, "args": {"name": "HCCL"}}
        for i in range(9_000)
    ]
    assert identify(write(tmp_path / "a.json", [*rows, *job()])).name == "kineto"


def test_a_parser_of_a_third_party_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    class Parser:
        @staticmethod
        def identify(path: Path) -> bool:
            return path.name == "own.txt"

        def __call__(self, path: Path, *, strict: bool) -> list[str]:
            return [f"{path.name} {strict}"]

    class Entry:
        name = "own"

        @staticmethod
        def load() -> Parser:
            return Parser()

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry()] if group == "tracekit.parsers" else [])
    (tmp_path / "own.txt").write_text("mine\n")
    assert parse(tmp_path / "own.txt", strict=True) == ["own.txt True"]
    (tmp_path / "other.txt").write_text("not mine\n")
    with pytest.raises(TracekitError):
        parse(tmp_path / "other.txt")
