"""Spellings of every generation of writer: categories, threads, ids, groups, ranks, merged files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kineto_writer import BASE, COMM, kernel, launch, op, us, write

from tracekit.model import CommArgs, DeviceClass, HostCat, ProcessGroup
from tracekit.parsers import kineto

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("way")


def read(path: Path, events: list[Any], **kwargs: Any) -> Any:
    return kineto.parse(write(path / "a.json", events, **kwargs))[0]


def test_categories_and_threads_of_2021(tmp_path: Path) -> None:
    common = {"pid": 900, "ts": 1610366387140599, "dur": 14}
    events = [
        {"ph": "X", "cat": "Operator", "name": "aten::empty", "tid": "1441273664", **common, "args": {"External id": 1}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "tid": "1441273664", **common,
         "args": {"correlation": 627, "external id": 883}},
        {"ph": "X", "cat": "Kernel", "name": "k", "tid": "stream 7", **{**common, "pid": 0},
         "args": {"device": 0, "stream": 7, "correlation": 627, "external id": 883}},
        {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "tid": "stream 12", **{**common, "pid": 1}, "args": {"bytes": 8}},
    ]  # fmt: skip
    t = read(tmp_path, events, head={"schemaVersion": 1})
    assert t.meta.era == "torch 1.8-1.11"
    assert sorted(t.host.cat.tolist()) == [HostCat.CPU_OP, HostCat.RUNTIME]
    assert sorted(t.host.ext.tolist()) == [1, 883]
    assert t.device.stream.tolist() == [7, 12]
    assert t.device.device.tolist() == [0, 1]
    assert t.device.ext.tolist() == [883, -1]
    assert t.device.nbytes.tolist() == [-1, 8]


def test_communication_arguments_of_every_era(tmp_path: Path) -> None:
    old = {
        "Collective name": "allreduce",
        "In msg size": 8,
        "Out msg size": 16,
        "Process Group ID": 3,
        "dtype": "Float",
    }
    new = {**COMM, "Rank": 1, "Src Rank": 2, "Dst Rank": 3, "Global rank start": 2, "Global rank stride": 1}
    events = [
        op("record_param_comms", 10, 5, **{"Input dims": [[2, 3]]}),
        op("record_param_comms", 20, 5, **old),
        op("record_param_comms", 30, 5, **new),
        op(
            "c10d::allreduce_",
            40,
            5,
            **{"Input Dims": [[[4, 4]]], "Input type": ["TensorList"], "Concrete Inputs": [""]},
        ),
        op("aten::mm", 50, 5, **{"Input Dims": [[1]]}),
        kernel("ncclDevKernel_AllReduce(x)", 60, 5, **COMM),
        kernel("anything", 70, 5, **COMM),
    ]
    t = read(tmp_path, events)
    bare, first, full, c10d, on_nccl, on_other = t.comm
    assert bare == CommArgs(dims=[[2, 3]])
    assert first == CommArgs(collective="allreduce", in_nelems=8, out_nelems=16, pg_name="3", dtype="Float")
    assert (full.comms_id, full.seq, full.src_rank, full.dst_rank) == (16215888877925988064, 55, 2, 3)
    assert (full.rank, full.rank_start, full.rank_stride, full.ranks_text) == (1, 2, 1, "[2, 3]")
    assert (c10d.dims, c10d.types, c10d.concrete) == ([[[4, 4]]], ["TensorList"], [""])
    assert on_nccl == on_other
    assert on_nccl.pg_desc == "tp"
    assert t.host.comm.tolist() == [0, 1, 2, 3, -1]
    assert t.device.comm.tolist() == [4, 5]


@pytest.mark.parametrize("layout", ["classic", "lines", "compact"])
def test_ids_of_64_bits_are_exact(tmp_path: Path, layout: str) -> None:
    big = (1 << 64) - 3
    filler = [op("aten::mm", 100 + i, 1, ext=5) for i in range(30)]
    events = [
        *filler,
        launch(1, 1, big),
        kernel("k", 2, 1, corr=big, stream=(1 << 63) + 5),
        kernel("h", 3, 1, stream="0x7f00"),
    ]
    t = read(tmp_path, events, layout=layout)
    assert t.host.corr[0] == -3
    assert t.device.corr[0] == -3
    assert t.device.stream.tolist() == [(1 << 63) + 5 - (1 << 64), 0x7F00]


def test_device_comes_from_the_argument_then_the_label_then_the_pid(tmp_path: Path) -> None:
    label = {"ph": "M", "name": "process_labels", "ts": us(0), "pid": 1234, "tid": 0, "args": {"labels": "GPU 5"}}
    bare = {"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "dur": us(1)}
    events = [
        {**bare, "pid": 3, "ts": us(1), "args": {"device": 2}},
        {**bare, "pid": 1234, "ts": us(2)},
        {**bare, "pid": 4, "ts": us(3), "args": {}},
        {**bare, "pid": "odd", "ts": us(4)},
        label,
    ]
    assert read(tmp_path, events).device.device.tolist() == [2, 5, 4, -1]


def test_only_work_occupies_a_device(tmp_path: Path) -> None:
    def row(cat: str, name: str, ts: int, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 17, "tid": 3, "ts": us(ts), "dur": us(5), "args": args}

    events = [
        row("cuda_sync", "Stream Sync", 1, stream=7),
        row("overhead", "Buffer Flush", 2),
        row("gpu_user_annotation", "nccl:all_reduce", 3),
        row("collective_comm", "xccl::allreduce", 4),
        row("mtia_ccp_events", "event_wait", 5, stream=108),
        row("mtia_ccp_events", "pe_exe", 6, stream=112),
        row("mtia_ccp_events", "dma_request", 7, stream=105, size=1024),
        row("xpu_runtime", "zeLaunch", 8, correlation=4),
        row("mtia_runtime", "launch", 9),
        row("privateuse1_runtime", "aclLaunch", 10),
    ]
    t = read(tmp_path, events)
    assert [t.names[i] for i in t.device.name] == ["xccl::allreduce"]
    assert t.device.cls.tolist() == [DeviceClass.KERNEL]
    # Waits and work share one category on MTIA, and nothing says which rows occupy the device.
    assert [h.count for h in t.health if "mtia_ccp_events" in h.reason] == [3]
    assert t.host.cat.tolist() == [HostCat.RUNTIME] * 3
    assert len(t.annotations) == 1


@pytest.mark.parametrize(
    ("name", "args", "peer"),
    [
        ("Memcpy PtoP (Device -> Device)", {}, 1),
        ("Memcpy DtoD (Device -> Device)", {}, 0),
        ("Memcpy HtoD (Pinned -> Device)", {}, 0),
        ("Memcpy DtoD (Device -> Device)", {"fromDevice": 0, "inDevice": 0, "toDevice": 1}, 1),
        ("Memcpy PtoP (Device -> Device)", {"fromDevice": 2, "toDevice": 2}, 0),
        ("a copy", {}, -1),
    ],
)
def test_peer_copies(tmp_path: Path, name: str, args: dict[str, Any], peer: int) -> None:
    row = {**kernel(name, 1, 1, **args), "cat": "gpu_memcpy"}
    assert read(tmp_path, [row]).device.peer.tolist() == [peer]


def test_merged_files_give_one_trace_a_process(tmp_path: Path) -> None:
    def of(label: str, event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "pid": f"[{label}] {event['pid']}"}

    one, two = "TP00-DP00-PP00-EP00", "TP01-DP00-PP00-EP00"
    events = [
        e
        for i, p in enumerate((two, one))
        for e in (of(p, op("aten::mm", 1 + i, 5)), of(p, kernel("k", 9 + i, 5, device=None)))
    ]
    traces = kineto.parse(write(tmp_path / "a.json", events, head={"distributedInfo": {"rank": 0, "world_size": 2}}))
    assert [t.meta.coordinates for t in traces] == [{"TP": i, "DP": 0, "PP": 0, "EP": 0} for i in (0, 1)]
    assert [t.meta.part for t in traces] == [0, 1]
    assert [t.meta.rank for t in traces] == [None, None]
    assert [t.host.ts.tolist() for t in traces] == [[2], [1]]
    assert [t.device.ts.tolist() for t in traces] == [[10], [9]]
    assert [t.device.device.tolist() for t in traces] == [[0], [0]]


def test_a_list_of_events_is_a_document(tmp_path: Path) -> None:
    import json

    (tmp_path / "a.json").write_text(json.dumps([op("a", 1_000, 5), kernel("k", 2_000, 5)]))
    t = kineto.parse(tmp_path / "a.json")[0]
    assert (len(t.host), len(t.device)) == (1, 1)


def test_thread_names_prefer_the_specific_one(tmp_path: Path) -> None:
    def name(text: str) -> dict[str, Any]:
        return {"ph": "M", "name": "thread_name", "ts": us(0), "pid": 900, "tid": 900, "args": {"name": text}}

    for order in (1, -1):
        names = [name("thread 900 (pt_gloo_runloop)"), name("thread 900 (python)")][::order]
        assert read(tmp_path, [op("a", 1, 1), *names]).tracks[0].name == "pt_gloo_runloop"


# ------------------------------------------------------------------------------- metadata

INFO = {
    "backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 2, "nccl_version": "2.27.5",
    "pg_config": [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 8, "ranks": [0, 1, 2, 3, 4, 5, 6, 7]},
        {"pg_name": "7", "pg_desc": "tp", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [2, 3]},
    ],
}  # fmt: skip


def test_what_the_file_says_of_itself(tmp_path: Path) -> None:
    head = {
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "distributedInfo": INFO, "host_name": "n1",
        "PT_PROFILER_JOB_NAME": "job", "PT_PROFILER_JOB_ATTEMPT_INDEX": "2", "tracekit": {"mesh": ["dp", "tp"]},
        "huge": "x" * 10_000, "baseTimeNanoseconds": BASE,
    }  # fmt: skip
    m = read(tmp_path, [op("a", 1, 1)], head=head).meta
    assert (m.rank, m.world_size, m.backend, m.nccl_version, m.pg_count) == (3, 8, "nccl", "2.27.5", 2)
    assert m.groups[1] == ProcessGroup("7", "tp", 2, (2, 3), "cuda:nccl")
    assert (m.host_name, m.job_name, m.attempt, m.era, m.on_demand) == ("n1", "job", 2, "torch>=2.12", False)
    assert m.devices[0]["name"] == "NVIDIA H200"
    assert m.extra == {"tracekit": {"mesh": ["dp", "tp"]}}


def test_on_demand_captures_are_marked(tmp_path: Path) -> None:
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": "[0, 1]"}
    info = {"backend": "nccl", "rank": "1", "world_size": "2", "pg_config": [group], "nccl_version": "unknown"}
    m = read(tmp_path, [op("a", 1, 1)], tail={"distributedInfo": info}).meta
    assert (m.on_demand, m.rank, m.world_size) == (True, 1, 2)
    assert m.groups[0].ranks == (0, 1)


@pytest.mark.parametrize(
    ("info", "rank"),
    [
        ({"rank": 0}, 0),
        ({}, None),
        ({"rank": None}, None),
        ({"rank": "x"}, None),
        ("text", None),
        (None, None),
        ([], None),
    ],
)
def test_every_field_of_distributed_info_is_optional(tmp_path: Path, info: Any, rank: int | None) -> None:
    assert read(tmp_path, [op("a", 1, 1)], head={"schemaVersion": 1, "distributedInfo": info}).meta.rank == rank


@pytest.mark.parametrize("ranks", ["[0, 1, ..., 7]", "[]", [], None, "nonsense", [0, "x"]])
def test_incomplete_rank_lists_stay_unknown(tmp_path: Path, ranks: Any) -> None:
    info = {"pg_config": [{"pg_name": "0", "pg_size": 8, "ranks": ranks}]}
    group = read(tmp_path, [op("a", 1, 1)], head={"schemaVersion": 1, "distributedInfo": info}).meta.groups[0]
    assert (group.ranks, group.size) == (None, 8)
