"""Logs of NCCL's Inspector: lines of its writer, composed by hand."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import BrokenInput, UnusableInput
from tracekit.parsers import identify, parse_witness

if TYPE_CHECKING:
    from pathlib import Path

START = 1_767_189_400_000_000


def line(rank: int = 3, *, comm: str = "0x9f3ac1", n: int = 8, kind: str = "coll", **perf: Any) -> dict[str, Any]:
    head = {"id": comm, "rank": rank, "n_ranks": n, "nnodes": 1}
    meta = {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": START + 9, "hostname": "h1", "pid": 900 + rank}  # fmt: skip
    base: dict[str, Any] = {"coll": "AllReduce", "coll_sn": 55, "coll_msg_size_bytes": 8192, "coll_exec_time_us": 41,
            "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 0.1998, "coll_busbw_gbs": 0.3497}  # fmt: skip
    if kind == "p2p":
        base = {k.replace("coll", "p2p", 1): v for k, v in base.items()} | {"p2p": "Send", "p2p_peer": 4}
    return {"header": head, "metadata": meta, f"{kind}_perf": base | perf}


def write(path: Path, *lines: Any) -> Path:
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["h1-pid900.log", "x.gz"])
def test_an_operation_to_the_last_field(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, line(later_field=[1]))
    assert identify(path).witness
    (witness,) = parse_witness(path)
    (group,), (call,) = witness.groups, witness.calls
    assert (group.comm_hash, group.own, group.size, group.ranks) == ("0x9f3ac1", 3, 8, None)
    assert (witness.meta.host_name, witness.meta.rank, witness.version) == ("h1", None, "v4.0")
    assert (call.op_raw, call.seq, call.state, call.dur_ns, call.payload_bytes) == (
        "AllReduce",
        55,
        "completed",
        41_000,
        8192,
    )
    assert call.extra == {
        "timing_source": "kernel_gpu", "algobw_gbs": 0.1998, "busbw_gbs": 0.3497, "dump_timestamp_us": START + 9,
    }  # fmt: skip
    assert (call.created_ns, call.started_ns, call.dtype) == (None, None, None)


@pytest.mark.parametrize(
    ("op", "size"), [("AllGather", 8 * 100), ("ReduceScatter", 8 * 100), ("Broadcast", 100), ("AllReduce", 100)]
)
def test_sizes_are_per_rank_as_nccl_was_given_them(tmp_path: Path, op: str, size: int) -> None:
    (witness,) = parse_witness(write(tmp_path / "x", line(coll=op, coll_msg_size_bytes=100)))
    assert witness.calls[0].payload_bytes == size


def test_verbose_lines_have_times(tmp_path: Path) -> None:
    kernels = [
        {"channel_id": i, "kernel_start_ts": START + 5 + i, "kernel_stop_ts": START + 40 + i, "kernel_record_ts": 0}
        for i in range(2)
    ]
    more = {
        "event_trace_sn": {"coll_start_sn": 1},
        "event_trace_ts": {"coll_start_ts": START, "coll_stop_ts": START + 50, "kernel_events": kernels},
    }
    (witness,) = parse_witness(write(tmp_path / "x", line(**more)))
    (call,) = witness.calls
    assert (call.created_ns, call.started_ns, call.completed_ns) == (
        START * 1000,
        (START + 5) * 1000,
        (START + 41) * 1000,
    )
    assert (call.noticed, call.dur_ns, call.extra["channels"], call.extra["event_trace_sn"]) == (
        True,
        41_000,
        2,
        {"coll_start_sn": 1},
    )


def test_messages(tmp_path: Path) -> None:
    (witness,) = parse_witness(write(tmp_path / "x", line(kind="p2p")))
    (call,) = witness.calls
    assert (call.op_raw, call.is_p2p, call.p2p_seq, call.seq, call.peer) == ("Send", True, 55, None, 4)
    assert (call.payload_bytes, call.dur_ns) == (8192, 41_000)


def test_ranks_of_a_whole_job_in_one_file(tmp_path: Path) -> None:
    found = parse_witness(write(tmp_path / "x", *(line(r, n=2) for r in (1, 0)), line(0, n=1, comm="0x7")))
    assert [(w.meta.rank, w.meta.world_size, len(w.calls)) for w in found] == [(1, 2, 1), (0, 2, 2)]
    assert found[1].groups[0].ranks == (0, 1)


def test_damaged_lines_are_counted_or_refused(tmp_path: Path) -> None:
    bad = [
        '{"header": {"id": "0x1"',
        "{}",
        json.dumps(line(comm="no number")),
        json.dumps({"header": line()["header"], "metadata": {}}),
    ]
    path = write(tmp_path / "x", line(), *bad)
    (witness,) = parse_witness(path)
    assert len(witness.calls) == 1
    assert [(h.reason, h.count, h.severity) for h in witness.health] == [("line that is no operation", 4, "lost")]
    with pytest.raises(BrokenInput, match="no operation"):
        parse_witness(path, strict=True)
    with pytest.raises(UnusableInput, match="no operation"):
        parse_witness(write(tmp_path / "y", '{"coll_perf": {}}'))


def test_a_line_without_end_is_left_out(tmp_path: Path) -> None:
    (witness,) = parse_witness(write(tmp_path / "x", line(), '{"coll_perf": "' + "x" * (5 << 20) + '"}', line()))
    assert len(witness.calls) == 2
    assert witness.health[0].count == 1


def test_an_absurd_size_of_a_communicator_costs_nothing(tmp_path: Path) -> None:
    (witness,) = parse_witness(write(tmp_path / "x", line(n=10**17)))
    assert (witness.meta.rank, witness.groups[0].ranks) == (None, None)
