"""Logs of NCCL and RCCL: lines of every version, written by hand from the formats of their sources."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tracekit.errors import BrokenInput, LimitExceeded, UnusableInput
from tracekit.parsers import nccl_common, nccl_log, nccl_log_block, nccl_log_core
from tracekit.parsers.core import VARIABLE, asked
from tracekit.parsers.nccl_common import elements, resolve_ranks
from tracekit.parsers.nccl_log import parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.model import Witness

POINTER = "0x55d0c0{:04x}"


def prefix(rank: int, *, level: str = "INFO", thread: int = 0) -> str:
    return f"h{rank // 8}:{900 + rank}:{thread or 900 + rank} [{rank % 8}] NCCL {level} "


def call(rank: int, op: str = "AllReduce", count: int = 4096, **more: object) -> str:
    m = {"opCount": "1a", "datatype": 9, "op": 0, "root": 0, "comm": POINTER.format(rank), "nranks": 2} | more
    return prefix(rank) + (
        f"{op}: opCount {m['opCount']} sendbuff 0x7f00 recvbuff 0x7f80 count {count} datatype {m['datatype']} "
        f"op {m['op']} root {m['root']} comm {m['comm']} [nranks={m['nranks']}] stream 0x55e0"
    )


def init(rank: int, nranks: int = 2, *, comm: str = "", more: str = "commId 0xabc0def0abc0def0") -> str:
    where = comm or POINTER.format(rank)
    return f"comm {where} rank {rank} nranks {nranks} cudaDev {rank % 8} nvmlDev {rank % 8} busId 1b000 {more}"


def log(path: Path, *lines: str) -> list[Witness]:
    path.write_text("\n".join(lines) + "\n")
    return parse(path)


INITS = {
    "2.10": "comm {p} rank {r} nranks 2 cudaDev {r} busId 1b000 - Init COMPLETE",
    "2.17": "comm {p} rank {r} nranks 2 cudaDev {r} busId 1b000 commId 0xf0f0 - Init COMPLETE",
    "2.18": "comm {p} rank {r} nranks 2 cudaDev {r} nvmlDev {r} busId 1b000 commId 0xf0f0 - Init COMPLETE",
    "2.21": "ncclCommInitRankConfig comm {p} rank {r} nranks 2 cudaDev {r} nvmlDev {r} busId 1b000 commId 0xf0f0 - Init COMPLETE",
    "rccl": "ncclCommInitRank comm {p} rank {r} nranks 2 cudaDev {r} nvmlDev {r} busId 1b000 commId 0xf0f0 localSize 288 used 123456 bytes on core 3 - Init COMPLETE",
}


@pytest.mark.parametrize("version", INITS)
def test_init_lines_of_each_version(tmp_path: Path, version: str) -> None:
    lines = [prefix(r) + INITS[version].format(p=POINTER.format(r), r=r) for r in range(2)]
    found = log(tmp_path / "log", *lines, call(0), call(1))
    assert [(w.meta.rank, w.meta.world_size, w.meta.host_name) for w in found] == [(0, 2, "h0"), (1, 2, "h0")]
    for rank, witness in enumerate(found):
        (group,) = witness.groups
        assert (group.own, group.size, group.ranks) == (rank, 2, (0, 1))
        assert group.comm_hash == (None if version == "2.10" else "0xf0f0")
        assert witness.meta.extra["communicators"][group.key]["busId"] == "1b000"
        assert [c.op_raw for c in witness.calls] == ["AllReduce"]


def test_start_of_the_newest_version_and_what_it_adds(tmp_path: Path) -> None:
    name = "ncclCommInitRankConfig "
    found = log(
        tmp_path / "log",
        prefix(0) + "[Rank 0] " + name + init(0) + " - Init START",
        prefix(0) + "Using network IB",
        prefix(0) + "comm " + POINTER.format(0) + " rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0",
        prefix(0) + "Ring 00 : 1 -> 0 -> 1",
        prefix(0) + "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
        prefix(0) + "Channel 00/02 :    0   1",
        prefix(0) + "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 4 p2p channels per peer",
        prefix(0) + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        prefix(0) + "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
        prefix(0) + "Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        prefix(0) + name + init(0) + " - Init COMPLETE",
    )
    (graph,) = found[0].meta.extra["communicators"].values()
    assert graph["rings"] == {0: (1, 1)}
    assert graph["trees"] == {0: (-1, (1, -1, -1)), 1: (1, (-1, -1, -1))}
    assert graph["order"] == {0: (0, 1)}
    assert graph["channels"] == {"coll": 24, "collnet": 24, "nvls": 16, "p2p": 32, "p2p_per_peer": 4}
    assert graph["links"] == {(0, 1, "P2P/CUMEM"): 2, (1, 0, "NET/IB/0/GDRDMA"): 1}
    assert (graph["network"], graph["nNodes"], graph["localRanks"], graph["MNNVL"]) == ("IB", 1, 2, 0)


def test_a_call_to_the_last_field(tmp_path: Path) -> None:
    (witness,) = log(tmp_path / "log", prefix(0) + init(0) + " - Init COMPLETE", call(0, op="AllReduce"))
    (one,) = witness.calls
    assert (one.op_raw, one.seq, one.op_id, one.p2p_seq, one.is_p2p) == ("AllReduce", 26, 26, None, False)
    assert (one.in_nelems, one.out_nelems, one.dtype, one.thread) == (4096, 4096, "BFloat16", "900")
    assert one.extra == {"stream": "0x55e0", "reduction": "sum", "sendbuff": "0x7f00", "recvbuff": "0x7f80"}
    assert (one.created_ns, one.dur_ns, one.peer, one.root) == (None, None, None, None)


@pytest.mark.parametrize(
    ("number", "name"), [(0, "Char"), (7, "Float"), (9, "BFloat16"), (11, "Float8_e5m2"), (12, "12")]
)
def test_element_types(tmp_path: Path, number: int, name: str) -> None:
    (witness,) = log(tmp_path / "log", call(0, datatype=number))
    assert witness.calls[0].dtype == name


@pytest.mark.parametrize(
    ("op", "sizes"),
    [
        ("AllReduce", (10, 10)), ("AllGather", (10, 40)), ("ReduceScatter", (40, 10)), ("AlltoAll", (40, 40)),
        ("Gather", (10, 40)), ("Scatter", (40, 10)), ("Send", (10, 10)), ("Broadcast", (10, 10)),
    ],
)  # fmt: skip
def test_sizes_on_one_rank(op: str, sizes: tuple[int, int]) -> None:
    assert elements(op, 10, 4) == sizes
    assert elements("AllGather", 10, None) == (10, None)


def test_point_to_point_and_rooted_calls(tmp_path: Path) -> None:
    (witness,) = log(
        tmp_path / "log", call(0, "Send", root=1), call(0, "Recv", root=1), call(0, "Broadcast", root=1, opCount="1b")
    )
    assert [(c.is_p2p, c.p2p_seq, c.seq, c.peer, c.root) for c in witness.calls] == [
        (True, 26, None, 1, None), (True, 26, None, 1, None), (False, None, 27, None, 1),
    ]  # fmt: skip


def test_rccl_adds_fields(tmp_path: Path) -> None:
    line = call(0).replace("recvbuff 0x7f80", "recvbuff 0x7f80 acc (nil)") + " task 3 globalrank 5"
    (witness,) = log(tmp_path / "log", "RCCL version : 2.22.3-develop:abc", line)
    assert witness.meta.rank == 5
    assert witness.version == "2.22.3-develop:abc"
    assert witness.calls[0].extra | {} == {
        "stream": "0x55e0", "reduction": "sum", "task": 3, "globalrank": 5, "sendbuff": "0x7f00",
        "recvbuff": "0x7f80", "acc": "(nil)",
    }  # fmt: skip


TUNING = {
    "8192 Bytes -> Algo 1 proto 0 time 12.3": {"algorithm": "RING", "protocol": "LL", "estimate_us": 12.3},
    "AllReduce: 8192 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..7}": {
        "algorithm": "TREE", "protocol": "LL128", "channels": 8,
    },
    "AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1": {
        "algorithm": "SYMMETRIC", "kernel": "AllReduce_AGxLL_R", "channels": 4,
    },
    "AllReduce [Copy Engine]: 8192 Bytes -> cudaMemcpyBatchAsync": {
        "algorithm": "COPY_ENGINE", "kernel": "cudaMemcpyBatchAsync",
    },
}  # fmt: skip


@pytest.mark.parametrize("text", TUNING)
def test_choice_of_algorithm(tmp_path: Path, text: str) -> None:
    (witness,) = log(
        tmp_path / "log", prefix(0) + init(0) + " - Init COMPLETE", call(0, count=1), call(0), prefix(0) + text
    )
    assert "algorithm" not in witness.calls[0].extra
    assert TUNING[text].items() <= witness.calls[1].extra.items()


def test_choices_of_a_group_come_in_another_order_and_some_fit_nothing(tmp_path: Path) -> None:
    (witness,) = log(
        tmp_path / "log",
        call(0, count=1), call(0, count=2),
        prefix(0) + "AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
        prefix(0) + "AllReduce: 2 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}",
        prefix(0) + "AllGather: 2 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}",
    )  # fmt: skip
    assert [c.extra["algorithm"] for c in witness.calls] == ["TREE", "RING"]
    assert [(h.reason, h.count) for h in witness.health] == [("choice of algorithm that no call matches", 1)]


def test_split_communicators_have_one_identity_on_all_ranks(tmp_path: Path) -> None:
    lines = []
    for rank in range(4):
        lines.append(prefix(rank) + init(rank, 4) + " - Init COMPLETE")
        split = f"comm 0x77{rank:02x} rank {rank // 2} nranks 2 cudaDev {rank} nvmlDev {rank} busId 1b000 parent "
        split += f"{POINTER.format(rank)} childCount 1 color {rank % 2} key {rank}"
        lines.append(prefix(rank) + "ncclCommSplit " + split + "- Init START")
        lines.append(prefix(rank) + "ncclCommSplit " + split + " - Init COMPLETE")
    found = log(tmp_path / "log", *lines)
    assert [w.meta.rank for w in found] == [0, 1, 2, 3]
    assert [w.groups[1].ranks for w in found] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert len({w.groups[1].comm_hash for w in found}) == 2


def test_no_global_rank_from_a_part_of_the_job(tmp_path: Path) -> None:
    """A node's own communicator is full, but the processes also sit in one whose other ranks are elsewhere."""
    lines = []
    for rank in range(2):
        lines.append(prefix(rank) + init(rank) + " - Init COMPLETE")
        other = f"comm 0x88{rank:02x} rank 0 nranks 2 cudaDev {rank} busId 1b000 commId 0x10{rank} - Init COMPLETE"
        lines.append(prefix(rank) + other)
    found = log(tmp_path / "log", *lines)
    assert [w.meta.rank for w in found] == [None, None]
    assert found[0].groups[0].ranks is None


def test_ranks_over_several_files(tmp_path: Path) -> None:
    found = [log(tmp_path / f"{r}", prefix(r) + init(r) + " - Init COMPLETE")[0] for r in range(2)]
    assert [w.meta.rank for w in found] == [None, None]
    resolve_ranks(found)
    assert [(w.meta.rank, w.groups[0].ranks) for w in found] == [(0, (0, 1)), (1, (0, 1))]


def test_launchers_name_the_rank(tmp_path: Path) -> None:
    found = log(tmp_path / "log", "[rank12]:" + call(0), "13: " + call(1))
    assert [w.meta.rank for w in found] == [12, 13]


def test_a_pointer_is_used_again(tmp_path: Path) -> None:
    first, second = init(0, more="commId 0x1"), init(0, 8, more="commId 0x2")
    (witness,) = log(
        tmp_path / "log",
        prefix(0) + first + " - Init START", prefix(0) + first + " - Init COMPLETE", call(0),
        prefix(0) + f"comm {POINTER.format(0)} rank 0 nranks 2 cudaDev 0 busId 1b000 - Destroy COMPLETE",
        prefix(0) + second + " - Init START", prefix(0) + second + " - Init COMPLETE", call(0, nranks=8),
    )  # fmt: skip
    assert [(g.comm_hash, g.size) for g in witness.groups] == [("0x1", 2), ("0x2", 8)]
    assert [c.group for c in witness.calls] == [g.key for g in witness.groups]


def test_writers_that_cut_into_each_other(tmp_path: Path) -> None:
    whole, cut = call(0), call(1)
    at = cut.index("count")
    found = log(tmp_path / "log", call(1), cut[:at] + whole, call(0) + cut[at:], call(0))
    calls = {w.meta.host_name + str(w.meta.extra["device"]): len(w.calls) for w in found}
    assert calls == {"h01": 1, "h00": 1}
    assert [(h.reason, h.count, h.severity) for h in found[0].health] == [
        ("line of a call that is not whole", 2, "lost")
    ]
    with pytest.raises(BrokenInput, match="not whole"):
        parse(tmp_path / "log", strict=True)


def test_a_line_glued_to_the_start_of_another(tmp_path: Path) -> None:
    found = log(tmp_path / "log", call(0), call(1), prefix(1) + "Ring" + call(0))
    assert [len(w.calls) for w in found] == [2, 1]


def test_times_are_kept_as_the_local_text_they_are(tmp_path: Path) -> None:
    lines = ["[2026-01-31 12:00:00] " + call(0), "[2026-01-31 12:00:07] " + call(0)]
    (witness,) = log(tmp_path / "log", *lines)
    assert [c.extra["local_time"] for c in witness.calls] == ["2026-01-31 12:00:00", "2026-01-31 12:00:07"]
    assert witness.calls[0].created_ns is None


def test_warnings_are_findings(tmp_path: Path) -> None:
    warning = "[2026-01-31 12:00:00] h0:900:900 [0] net.cc:12 (ncclNetSend) NCCL WARN Call to ibv failed"
    (witness,) = log(tmp_path / "log", call(0), warning, warning)
    assert [(h.reason, h.count, h.example) for h in witness.health] == [
        ("NCCL warning", 2, "Call to ibv failed (net.cc:12)")
    ]


def many(n: int, *, op: str = "AllReduce") -> list[str]:
    return [call(i % 2, op, count=i % 7 + 1, opCount=f"{i // 2:x}", root=i % 3) for i in range(n)]


def same(a: list[Witness], b: list[Witness]) -> bool:
    return [(w.meta.rank, w.groups, w.calls, w.lost) for w in a] == [
        (w.meta.rank, w.groups, w.calls, w.lost) for w in b
    ]


def line_by_line(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Read without columns from now on; what was asked for is added to the list."""
    used: list[object] = []
    monkeypatch.setenv(VARIABLE, "0")
    monkeypatch.setattr(nccl_log_block.Block, "calls", lambda block: used.append(block))  # noqa: PLW0108 - to be bound
    return used


@pytest.fixture(params=["pure", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How calls are read that are not read line by line."""
    if request.param == "compiled" and not nccl_log_core.available():
        if asked() == "1":
            pytest.fail("TRACEKIT_CORE=1, and the scanner of logs is not built")
        pytest.skip("the scanner of logs is not built")
    monkeypatch.setenv(VARIABLE, {"pure": "0", "compiled": "1"}[request.param])
    return str(request.param)


@pytest.mark.parametrize("form", ["plain", "tagged", "rccl"])
def test_columns_and_lines_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, way: str) -> None:
    lines = many(3_000)
    if form == "tagged":
        lines = [f"[rank{i % 2}]: {line}" for i, line in enumerate(lines)]
    elif form == "rccl":
        lines = [
            line.replace(" count", " acc (nil) count") + f" task 0 globalrank {i % 2}" for i, line in enumerate(lines)
        ]
    path = tmp_path / "log"
    by_columns = log(path, *lines)
    used = line_by_line(monkeypatch)
    assert same(parse(path), by_columns)
    assert used
    assert sum(len(w.calls) for w in by_columns) == 3_000
    assert by_columns[1].calls[-1].op_id == 1_499


ODD: dict[int, Callable[[str], str]] = {
    30: lambda line: line[: line.index("count")] + line,  # cut by another writer
    31: lambda line: line[:-60],
    32: lambda line: line.replace("opCount ", "opCount g"),
    33: lambda line: "[2026-1-3 1:00:00] " + line,
    34: lambda line: line.replace("sendbuff 0x7f00", "sendbuff 0x" + "7" * 600),
    35: lambda line: line.replace("count ", "count 99999999999999999999"),
    36: lambda line: line.replace("h0:", "h0\u00e9:"),
    37: lambda line: line + "\r",
}  # fmt: skip
"""What is odd about a line, by its number modulo 97."""


def mixture(n: int) -> list[str]:
    """Calls with and without a time, choices of algorithms, new communicators, and what no reader likes, among each
    other.
    """
    lines = []
    for i in range(n):
        rank, kind = i % 3, i % 97
        line = call(rank, ("AllReduce", "AllGather", "Send")[i % 3], count=i % 7 + 1, opCount=f"{i:x}", root=i % 2)
        if kind < 20:
            line = f"[2026-01-31 12:{i // 600:02}:{i // 10 % 60:02}] {line}"
        lines.append(ODD.get(kind, str)(line))
        if rank == 0 and i % 2:
            size = (i % 7 + 1) * 2
            lines.append(prefix(0) + f"AllReduce: {size} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..{i % 5}}}")
        if i % 400 == 399:
            lines.append(prefix(rank) + init(rank, 2 + i // 400, more=f"commId 0x{i}") + " - Init COMPLETE")
        if i % 50 == 49:
            lines += ["not of NCCL", "", prefix(1) + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"]
    return lines


@pytest.mark.parametrize("block", [1 << 19, 40_000])
@pytest.mark.parametrize("keep", [200_000, 700])
def test_every_mixture_reads_the_same_in_columns_and_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, keep: int, way: str
) -> None:
    monkeypatch.setattr(nccl_log, "BLOCK", block)
    monkeypatch.setattr(nccl_log, "MAX_CALLS", keep)
    lines = mixture(3_000)
    by_columns = log(tmp_path / "log", *lines)
    used = line_by_line(monkeypatch)
    by_lines = parse(tmp_path / "log")
    assert used
    assert [w.calls for w in by_columns] == [w.calls for w in by_lines]
    assert same(by_columns, by_lines)
    assert [[(h.reason, h.count) for h in w.health] for w in by_columns] == [
        [(h.reason, h.count) for h in w.health] for w in by_lines
    ]
    if keep > 3_000:
        damaged = sum(i % 97 in (31, 32, 35) for i in range(3_000))
        calls = [c for w in by_columns for c in w.calls]
        assert 0 < 3_000 - len(calls) <= damaged + 31  # those cut by another writer are told apart, or left out
        assert sum("algorithm" in c.extra for c in calls) > 400
        assert sum("local_time" in c.extra for c in calls) > 600


def test_texts_that_differ_anywhere_are_told_apart() -> None:
    """One bit in any place of a part of any length, short and long."""
    for width in (1, 7, 8, 9, 30, 64):
        texts = [bytes(width)] + [bytes(i) + bytes([1 << (i % 8)]) + bytes(width - i - 1) for i in range(width)]
        block = nccl_log_block.Block(b"".join(texts + texts))
        start = np.arange(2 * len(texts)) * width
        codes, first = block.distinct((start, start + width))
        assert sorted(first.tolist()) == list(range(len(texts)))
        assert codes[: len(texts)].tolist() == codes[len(texts) :].tolist()


def test_equal_mixtures_of_unequal_texts_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log_block, "_MULTIPLIER", np.uint64(0))  # so that all mixtures are equal
    block = nccl_log_block.Block(b"aaaabbbbaaaa")
    start = np.arange(3) * 4
    codes, _ = block.distinct((start, start + 4))
    assert codes.tolist() == [0, -1, 0]


def test_a_block_with_a_line_of_another_form_is_read_line_by_line(tmp_path: Path) -> None:
    lines = many(1_000)
    lines[500] += " task 0 globalrank 0"
    assert sum(len(w.calls) for w in log(tmp_path / "log", *lines)) == 1_000
    lines[500] = lines[500][:120]
    found = log(tmp_path / "log", *lines)
    assert sum(len(w.calls) for w in found) == 999


def test_the_last_calls_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log, "MAX_CALLS", 100)
    monkeypatch.setattr(nccl_log, "BLOCK", 20_000)
    found = log(tmp_path / "log", *many(3_000))
    assert [len(w.calls) for w in found] == [50, 50]
    assert [w.lost for w in found] == [1_450, 1_450]
    assert found[0].calls[-1].op_id == 1_499
    assert [(h.reason, h.count) for h in found[0].health] == [("calls before the last 100 of the file", 1_450)]


def test_lines_without_end_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log, "BLOCK", 1_000)
    (witness,) = log(tmp_path / "log", call(0), "x" * 5_000, call(0))
    assert len(witness.calls) == 2
    assert [h.reason for h in witness.health] == ["line of more than 1,000 bytes"]


def test_compressed_and_cut(tmp_path: Path) -> None:
    data = gzip.compress("\n".join(many(400)).encode())
    (tmp_path / "whole.gz").write_bytes(data)
    assert sum(len(w.calls) for w in parse(tmp_path / "whole.gz")) == 400
    (tmp_path / "cut.gz").write_bytes(data[:-200])
    found = parse(tmp_path / "cut.gz")
    assert any("compressed stream" in h.reason for h in found[0].health)


def test_an_init_line_that_was_cut_inside_its_pointer(tmp_path: Path) -> None:
    (witness,) = log(tmp_path / "log", prefix(0) + "comm 0x\u00e9 rank 0 nranks 2 - Init COMPLETE", call(0))
    assert witness.groups[0].own is None


def test_a_file_of_too_many_processes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_common, "MAX_PROCESSES", 3)
    assert len(log(tmp_path / "log", *(call(r) for r in range(3)))) == 3
    with pytest.raises(LimitExceeded, match="more than 3 processes"):
        log(tmp_path / "log", *(call(r) for r in range(4)))


def test_a_communicator_that_ends_takes_only_its_own_shapes(tmp_path: Path) -> None:
    lines = [call(0), call(0, comm="0x77"), call(1)]
    again = prefix(0) + init(0, 4, more="commId 0x9") + " - Init COMPLETE"
    found = log(tmp_path / "log", prefix(0) + init(0) + " - Init COMPLETE", *lines * 40, again, *lines * 40)
    sizes = {g.key: g.size for w in found for g in w.groups}
    counts = {key: sum(c.group == key for w in found for c in w.calls) for key in sizes}
    assert sorted(counts.values()) == [40, 40, 80, 80]
    assert sorted(sizes.values()) == [2, 2, 2, 4]


def test_a_log_that_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="NCCL_DEBUG_SUBSYS"):
        log(tmp_path / "log", prefix(0) + "Bootstrap : Using eth0")


@pytest.mark.shared
def test_the_public_log(shared: Path) -> None:
    path = next((shared / "corpus").glob("fwyc0573+Megatron-LM/**/sim_log*.log"))
    (witness,) = parse(path)
    text = path.read_text("utf-8", "replace").splitlines()
    lines = [line for line in text if "opCount" in line]
    assert len(witness.calls) == len(lines) == 7
    for one, line in zip(witness.calls, lines, strict=True):
        assert f" count {one.in_nelems} " in line
        assert f"opCount {one.op_id:x} " in line
        assert str(one.extra["recvbuff"]) in line
    assert witness.version == "2.18.6+cuda12.1"
    assert witness.groups[0].comm_hash == "0xea063011c4c51421"
    assert len(next(iter(witness.meta.extra["communicators"].values()))["rings"]) == 32


@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize(
    "junk",
    [
        "A" * 300_000 + " NCCL INFO", "A" * 300_000 + " NCCL version", prefix(0) + "A" * 300_000 + ": opCount",
        "A" * 300_000 + ": opCount 1 sendbuff", "1" * 300_000 + " Bytes", "[2026-01-01" * 30_000 + " NCCL ",
        prefix(0) + "x:1 (" * 60_000, prefix(0) + "comm 0x1 " + "A" * 300_000, prefix(0) + "7" * 300_000 + " p2p",
        prefix(0) + "TUNING " + "A" * 300_000 + " Bytes -> ",
    ],
    ids=range(10),
)  # fmt: skip
def test_a_long_line_without_blanks_is_read_once(tmp_path: Path, junk: str, core: bool) -> None:
    """Tried at each letter, such a line takes minutes."""
    lines = [prefix(r) + init(r) + " - Init COMPLETE" for r in range(2)]
    (tmp_path / "log").write_text("\n".join([*lines, call(0), junk, call(1)]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        if not core:
            patch.setenv(VARIABLE, "0")
        found = parse(tmp_path / "log")
    assert [len(w.calls) for w in found] == [1, 1]
