"""An Nsight Systems export and NCCL's logs of the same processes: one job, told by both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from job_writer import NCCL, PIDS, SIZE, T0, Job, Made, write
from nsys_writer import EPOCH, Export

import tracekit as tk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

JOB = Job()
INNER = range(2, 5)
COMM, BYTES = "NCCL communicator ID", "Message size [bytes]"


def told(rank: int, steps: Iterable[int] = INNER) -> list[Made]:
    return [c for c in JOB.calls(rank) if c.step in steps]


def export(path: Path, ranks: Iterable[int] = JOB.ranks, *, pids: int = PIDS) -> Path:
    """The kernels and NCCL ranges of the inner steps; every rank is a process of the file."""
    out = Export()
    out.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=EPOCH, utcTime="", localTime="")
    out.add("TARGET_INFO_SYSTEM_ENV", globalVid=0, devStateName="", name="Hostname", nameEnum=0, value="h0")
    for rank in ranks:
        process = pids + rank
        for i, group in enumerate("0123"):
            members = JOB.members(rank, group)
            seat = {
                COMM: JOB.hash(rank, group),
                "No. of ranks": len(members),
                "Rank": members.index(rank),
                "CUDA device": rank,
            }
            out.nccl("ncclCommInitRankConfig", 1_000 * (i + 1), 500, seat, process=process)
        for i, c in enumerate(told(rank)):
            at, corr = c.at - T0 + 1_000_000, 1 + i + 100_000 * rank
            size = min(c.count_in, c.count_out) * SIZE[c.dtype]
            if c.op == "all_to_allv":
                for peer in range(2):
                    for op in ("ncclSend", "ncclRecv"):
                        payload = {COMM: JOB.hash(rank, c.group), BYTES: size // 2, "Peer rank": peer}
                        out.nccl(op, at + 100 * peer, 50, payload, process=process)
            else:
                out.nccl(f"nccl{NCCL[c.op]}", at, 9_000, {COMM: JOB.hash(rank, c.group), BYTES: size}, process=process)
            out.launch(at + 2_000, 3_000, corr, process=process)
            out.kernel(
                f"ncclDevKernel_{NCCL[c.op]}(x)", at + 12_000, c.dur, process=process, device=rank, stream=20, corr=corr
            )
    return out.write(path)


def rows_of(result: Any, rank: int) -> list[dict[str, Any]]:
    return sorted((r for r in result.arrow("collectives").to_pylist() if r["rank"] == rank), key=lambda r: r["id"])


@pytest.mark.parametrize("split", [False, True])
def test_choices_of_the_log_reach_the_kernels_of_the_export(tmp_path: Path, split: bool) -> None:
    for r in JOB.ranks:
        if split:
            export(tmp_path / f"rank{r}.sqlite", [r])
        write(tmp_path / f"nccl.{r}.log", JOB.log(r))
    if not split:
        export(tmp_path / "all.sqlite")
    result = tk.analyze(tmp_path, workers=1)
    for rank in JOB.ranks:
        rows = [r for r in rows_of(result, rank) if r["op"] not in ("all_to_all", "send", "recv")]
        made = [c for c in told(rank) if c.op != "all_to_allv"]
        for row, one in zip(rows, made, strict=True):
            assert row["group_name"] == f"0x{JOB.hash(rank, one.group):x}"
            assert row["dur_ns"] == one.dur
            assert row["payload_bytes"] == max(one.count_in, one.count_out) * SIZE[one.dtype]
            assert row["witness"].startswith("nccl-log:")
            assert (row["algorithm"], row["protocol"], row["channels"]) == (one.algorithm, one.protocol, one.channels)
            assert row["source_algorithm"] == "nccl-log"
    assert not [h for h in result.run.tables["health"] if "contradict" in h["reason"]]


def test_logs_of_other_processes_are_not_joined(tmp_path: Path) -> None:
    export(tmp_path / "all.sqlite")
    for r in JOB.ranks:
        write(tmp_path / f"nccl.{r}.log", JOB.log(r, pid=7000 + r))
    result = tk.analyze(tmp_path, workers=1)
    assert {r["algorithm"] for r in result.arrow("collectives").to_pylist()} == {None}
    left = [h for h in result.run.tables["health"] if h["reason"] == "nccl-log of no trace here, not joined"]
    assert len(left) == len(JOB.ranks)
