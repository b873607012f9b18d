"""PyTorch execution traces: every schema, groups, splits that are never cut, damage; what they say alone."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from et_writer import groups, node, record, trace

import tracekit as tk
from tracekit.errors import BrokenInput, ForeignFormat, LimitExceeded, UnusableInput
from tracekit.parsers import et_nodes, execution_trace, identify, parse_witness

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.model import Witness

THREAD = node(2, "[pytorch|profiler|execution_trace|thread]")
WORLD = {
    "pg_name": "0",
    "pg_desc": "default_pg",
    "backend_config": "cuda:nccl",
    "ranks": [],
    "group_size": 8,
    "group_count": 2,
}
TP = {
    "pg_name": "7",
    "pg_desc": "tp",
    "backend_config": "cuda:nccl",
    "ranks": [4, 6],
    "group_size": 2,
    "group_count": 2,
}


def read(path: Path, text: str, *, strict: bool = False) -> Witness:
    path.write_text(text)
    (found,) = execution_trace.parse(path, strict=strict)
    return found


@pytest.mark.parametrize("indent", [None, 2])
def test_a_record_to_the_last_field(tmp_path: Path, indent: int | None) -> None:
    around = node(10, "DistributedDataParallel.forward", 2)
    one = record(20, parent=11, rf=92, tid=3)
    found = read(
        tmp_path / "x",
        trace(THREAD, groups(3, [WORLD, TP]), one, node(11, "c10d::allreduce_", 10), around, indent=indent),
    )
    assert identify(tmp_path / "x").name == found.source == "execution-trace"
    assert (found.version, found.meta.rank, found.meta.world_size, found.lost) == ("1.1.1-chakra.0.0.4", 6, 8, 0)
    world, tp = sorted(found.groups, key=lambda g: g.key)
    assert (world.name, world.desc, world.size, world.ranks, world.own) == ("0", "default_pg", 8, tuple(range(8)), 6)
    assert (tp.name, tp.desc, tp.size, tp.ranks, tp.own, tp.backend) == ("7", "tp", 2, (4, 6), 1, "cuda:nccl")
    (call,) = found.calls
    assert (call.op_raw, call.group, call.seq, call.p2p_seq, call.is_p2p) == ("allreduce", "7", 55, None, False)
    assert (call.in_nelems, call.out_nelems, call.in_sizes, call.dtype) == (6, 6, [[6]], "Float")
    assert (call.rf_id, call.thread, call.scopes) == (92, "3", ("DistributedDataParallel.forward",))
    assert (call.created_ns, call.dur_ns, call.in_splits) == (None, None, None)
    assert not found.health


@pytest.mark.parametrize("schema", ["1.0.1", "1.0.2-chakra.0.0.4", "1.1.0-chakra.0.0.4", "1.1.1-chakra.0.0.4"])
def test_every_schema(tmp_path: Path, schema: str) -> None:
    old = schema.startswith("1.0")
    one = record(
        20, "all_to_allv", schema=schema, splits=([2, 4], [1, 5]), group=93825114103440 if old else ("7", "tp"),
        where=(2,) if old else (4, 2, 2), rf=92,
    )  # fmt: skip
    waiting = record(21, "wait", schema=schema, rank=0, group=0 if old else ("", ""), where=(1,))
    found = read(tmp_path / "x", trace(one, waiting, schema=schema))
    call, wait = found.calls
    assert (call.op_raw, call.seq, call.in_splits, call.out_splits, call.rf_id) == (
        "all_to_allv",
        55,
        "[2, 4]",
        "[1, 5]",
        92,
    )
    assert call.dtype == ("float" if old else "Float")
    assert (wait.op_raw, wait.group) == ("wait", None)
    (group,) = found.groups
    assert (group.name, group.size, group.own) == (None if old else "7", 2, 1)
    assert (group.ranks, found.meta.rank) == ((None, None) if old else ((4, 6), 6))


def test_long_splits_are_whole(tmp_path: Path) -> None:
    splits = list(range(1, 65))
    one = record(20, "all_to_allv", where=(0, 1, 64), splits=(splits, splits), rank=3)
    call = read(tmp_path / "x", trace(one)).calls[0]
    assert call.in_splits is not None
    assert json.loads(call.in_splits) == splits


def test_peers_roots_and_irregular_groups(tmp_path: Path) -> None:
    found = read(
        tmp_path / "x",
        trace(
            record(20, "send", rank=0, p2p=True), record(21, "broadcast", rank=1), record(22, "_reduce_scatter_base", rank=0),
            record(23, group=("9", "odd"), where=(-1, -1, 3), rank=2), record(24, "barrier", group=("9", "odd"), rank=2),
        ),
    )  # fmt: skip
    send, broadcast, scatter, odd, barrier = found.calls
    assert (send.is_p2p, send.p2p_seq, send.seq, send.peer) == (True, 55, None, 0)
    assert (broadcast.root, broadcast.peer, scatter.root) == (1, None, None)
    assert (odd.group, barrier.group) == ("9", "9")
    tp, irregular = found.groups
    assert (tp.own, tp.ranks) == (0, (4, 6))  # told by the reduce-scatter: of the others the rank is a peer or a root
    assert (irregular.own, irregular.size, irregular.ranks) == (2, 3, None)
    assert found.meta.rank == 4


def test_gloo_has_operators_without_records(tmp_path: Path) -> None:
    schema = "c10d::alltoall_base_(Tensor output, Tensor input, __torch__.torch.classes.c10d.ProcessGroup process_group, int[] a, bool async_op=True, int timeout=-1) -> __torch__.torch.classes.c10d.Work"
    operator = node(
        20, "c10d::alltoall_base_", 10, values=[[], [], "<Object>", [], False, -1], shapes=[[97, 64], [96, 64], [], [], [], []],
        types=["Tensor(c10::BFloat16)", "Tensor(c10::BFloat16)", "Object", "GenericList[]", "Bool", "Int"], op_schema=schema,
    )  # fmt: skip
    outer = node(10, "_c10d_functional::all_to_all_single", 2, shapes=[[96, 64]], types=["Tensor(c10::BFloat16)"],
                 op_schema="_c10d_functional::all_to_all_single(Tensor input, SymInt[] o, str group_name) -> Tensor")  # fmt: skip
    waits = node(30, "_c10d_functional::wait_tensor", 2, op_schema="_c10d_functional::wait_tensor() -> ()")
    (call,) = read(tmp_path / "x", trace(THREAD, operator, outer, waits)).calls
    assert (call.op_raw, call.dtype, call.group) == ("c10d::alltoall_base_", "c10::BFloat16", None)
    assert (call.in_sizes, call.out_sizes) == ([[96, 64]], [[97, 64]])


def test_what_torch_writes_wrong_costs_one_node(tmp_path: Path) -> None:
    """Unescaped quotes in a name or an argument (pytorch#126703), and numbers that JSON has not."""
    bad = json.dumps(node(15, "a name with NOQUOTES in it", 2)).replace("NOQUOTES", '"quotes"')
    bare = json.dumps(node(16, "aten::fill_", 2, values=[12345.5], shapes=[[]], types=["Double"])).replace(
        "12345.5", "-inf"
    )
    text = trace(THREAD, record(20), record(30, seq=56))
    at = text.index('{"id": 30')
    path = tmp_path / "x"
    found = read(path, text[:at] + bad + ", " + bare + ", " + text[at:])
    assert [c.seq for c in found.calls] == [55, 56]
    assert [(h.reason, h.count, h.severity) for h in found.health] == [
        ("nodes of the execution trace lost", 1, "lost"), ("nodes of the execution trace repaired", 1, "repaired"),
    ]  # fmt: skip
    with pytest.raises(BrokenInput, match="not whole, near byte"):
        execution_trace.parse(path, strict=True)


@pytest.mark.parametrize("compress", [False, True])
def test_a_cut_file_keeps_its_whole_nodes(tmp_path: Path, compress: bool) -> None:
    text = trace(THREAD, *(record(20 + i, seq=i) for i in range(50)))
    data = gzip.compress(text.encode()) if compress else text.encode()
    path = tmp_path / "x"
    path.write_bytes(data[: len(data) * 2 // 3])
    (found,) = execution_trace.parse(path)
    assert 0 < len(found.calls) < 50
    assert found.lost is None
    assert any(h.severity == "lost" for h in found.health)


def test_nodes_are_read_over_the_borders_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = trace(THREAD, *(record(20 + i, seq=i, parent=2) for i in range(40)), indent=1)
    whole = read(tmp_path / "x", text)
    for size in (97, 333, 4096):
        monkeypatch.setattr(et_nodes, "BLOCK", size)
        assert read(tmp_path / "x", text).calls == whole.calls
    assert [c.seq for c in whole.calls] == list(range(40))


def test_keys_in_another_order(tmp_path: Path) -> None:
    root = json.loads(trace(THREAD, record(20)))
    found = read(tmp_path / "x", json.dumps(root | {"nodes": [dict(sorted(n.items())) for n in root["nodes"]]}))
    assert [c.seq for c in found.calls] == [55]


def test_circles_and_numbers_that_come_twice(tmp_path: Path) -> None:
    found = read(tmp_path / "x", trace(node(10, "a", 11), node(11, "b", 10), record(20, parent=10), record(20, seq=9)))
    assert [(c.seq, c.scopes) for c in found.calls] == [(55, ("b", "a"))]
    assert [h.reason for h in found.health] == ["node with a number that another node has (left out)"]


def test_hostile_nodes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    deep = json.dumps(node(15, "deep", 2)).replace('"values": []', '"values": ' + "[" * 200_000 + "]" * 200_000)
    text = trace(THREAD, record(20), record(30, seq=56))
    at = text.index('{"id": 30')
    found = read(path, text[:at] + deep + ", " + text[at:])
    assert [c.seq for c in found.calls] == [55, 56]
    monkeypatch.setattr(et_nodes, "MAX_NODE", 1 << 20)
    monkeypatch.setattr(et_nodes, "BLOCK", 1 << 16)
    path.write_text(text[:at] + '{"id": 29, "name": "' + "x" * (8 << 20) + '"}, ' + text[at:])
    tracemalloc.start()
    (found,) = execution_trace.parse(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [c.seq for c in found.calls] == [55, 56]
    assert found.health[0].count > 0
    assert peak < 6 << 20
    monkeypatch.setattr(et_nodes, "MAX_NODES", 3)
    with pytest.raises(LimitExceeded, match="record fewer steps"):
        read(path, trace(*(record(20 + i) for i in range(5))))


def test_files_that_hold_no_node(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text('{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [')
    with pytest.raises(UnusableInput, match="no whole node"):
        execution_trace.parse(path)
    path.write_text('{"traceEvents": []}')
    with pytest.raises(ForeignFormat):
        parse_witness(path)


def test_labels_come_from_the_nodes_around(tmp_path: Path) -> None:
    """Alone it tells calls, groups, bytes and labels, but no times."""
    for rank in range(2):
        around = node(10, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 2)
        listed = [WORLD | {"group_size": 2}]
        mine = record(20, parent=10, group=("0", "default_pg"), where=(0, 1, 2), rank=rank, n=4096)
        (tmp_path / f"et.{rank}").write_text(trace(THREAD, groups(3, listed), around, mine))
    result = tk.analyze(tmp_path, workers=1)
    rows = result.arrow("collectives").to_pylist()
    assert [(r["rank"], r["op"], r["strategy"], r["phase"], r["payload_bytes"]) for r in rows] == [
        (rank, "all_reduce", "dp", "backward", 16384) for rank in range(2)
    ]
    assert {r["dur_ns"] for r in rows} == {None}
    assert [r["exposed_ns"] for r in result.document["totals"]] in ([], [None, None])


# ------------------------------------------------------------------ recordings and corpus


@pytest.mark.shared
def test_recordings_say_the_same_as_their_kineto_traces(shared: Path, tmp_path: Path) -> None:
    """The same calls in the same order, with the labels of the traces recorded beside them."""
    folder = shared / "recordings" / "fret_tk_ep2"
    told = {}
    for kind, pattern in (("et", "et_rank{}.json.gz"), ("kineto", "rank{}.json.gz")):
        (tmp_path / kind).mkdir()
        for rank in range(2):
            name = pattern.format(rank)
            (tmp_path / kind / name).write_bytes((folder / name).read_bytes())
        told[kind] = tk.analyze(tmp_path / kind, workers=1).arrow("collectives").to_pylist()
    columns = ("rank", "op", "group_name", "group_desc", "group_id", "seq", "in_nelems", "out_nelems", "dtype",
               "payload_bytes", "strategy", "purpose", "scopes")  # fmt: skip
    assert [[r[c] for c in columns] for r in told["et"]] == [[r[c] for c in columns] for r in told["kineto"]]
    truth = json.loads((folder / "labels_rank0.json").read_text())
    mine = [r for r in told["et"] if r["rank"] == 0]
    assert len(mine) == len(truth)
    assert all(r["strategy"] in t["accept"] for r, t in zip(mine, truth, strict=True))
    assert [r["seq"] for r in mine] == [t["seq"] for t in truth]


CORPUS = {
    "astra-sim+astra-sim/megatron_tp8_et/megatron_et_1.json.gz": (None, 85, {8, 1}),
    "astra-sim+astra-sim/astra_et_2rank/eg.rank_1.pt.trace.json.gz": (1, 7, {2}),
    "facebookresearch+param/param_other/1.1.0-chakra.0.0.4.resnet_2gpu_et.json.gz": (1, 21, {2}),
    "astra-sim+astra-sim/dlrm_et_plus/dlrm_eg_1_plus.json.gz": (None, 8, {None}),
    "facebookresearch+HolisticTraceAnalysis/hta_et_pair/benchmark_simple_add_et.json.gz": (None, 0, set()),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", CORPUS)
def test_corpus(shared: Path, name: str) -> None:
    """Counts are those of the records by their text, less the waits."""
    path = shared / "corpus" / name
    (found,) = parse_witness(path, strict="plus" not in name)
    rank, calls, sizes = CORPUS[name]
    text = gzip.decompress(path.read_bytes()).decode()
    records = sum(n["name"] == "record_param_comms" for n in json.loads(text)["nodes"])
    assert len(found.calls) == records
    assert sum(c.op_raw != "wait" for c in found.calls) == calls
    assert (found.meta.rank, {g.size for g in found.groups}) == (rank, sizes)
    assert all(c.in_sizes and c.dtype for c in found.calls if c.op_raw != "wait")
    assert not found.health
