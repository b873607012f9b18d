"""Folders of one source or several, without any profiler's trace: ranks, groups, calls, and who stands for a rank."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import et_writer
import flight_writer
import pyarrow.parquet as pq
import pytest
from job_writer import NCCL, PIDS, SIZE, Job, write

import tracekit as tk

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job()


def rows_of(result: Any, rank: int) -> list[dict[str, Any]]:
    return [r for r in result.arrow("collectives").to_pylist() if r["rank"] == rank]


def ranks(result: Any) -> list[tuple[int | None, str, bool]]:
    return [(r["rank"], r["identity"], r["used"]) for r in result.arrow("ranks").to_pylist()]


def check_calls(result: Any) -> None:
    """Every call of every rank as it was: group, members, operation, elements, type, bytes."""
    for rank in JOB.ranks:
        for row, made in zip(rows_of(result, rank), JOB.calls(rank), strict=True):
            members = JOB.members(rank, made.group)
            given, taken = made.count_in, made.count_out
            assert (row["in_nelems"], row["out_nelems"], row["dtype"]) == (given, taken, made.dtype)
            assert row["payload_bytes"] == max(given, taken) * SIZE[made.dtype]
            assert row["group_size"] == len(members)
            assert row["group_name"] == f"0x{JOB.hash(rank, made.group):x}"
            assert (row["op"] == "all_to_all") is (NCCL[made.op] == "AlltoAll")
            assert row["seq"] == made.number
            assert (row["source_group"], row["source_size"]) == ("nccl-log", "nccl-log")
    held = {(r["group_name"], r["rank"]) for r in result.arrow("groups").to_pylist()}
    assert held == {(f"0x{JOB.hash(r, g):x}", r) for r in JOB.ranks for g in "0123"}


def test_a_dataset_of_logs_alone(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for r in JOB.ranks:
        write(tmp_path / "logs" / f"{r}.log", JOB.log(r))
    result = tk.analyze(tmp_path / "logs", workers=1)
    result.write(tmp_path / "out")
    for table in ("totals", "collectives", "groups"):
        assert pq.read_table(tmp_path / "out" / table).num_rows == result.arrow(table).num_rows > 0
    assert {r["slowdown_kernels"] for r in pq.read_table(tmp_path / "out" / "totals").to_pylist()} == {0}


@pytest.mark.parametrize("name", ["nccl.h0.{pid}.log", "rank{r}.log", "{r}/nccl.log"])
def test_one_log_a_process(tmp_path: Path, name: str) -> None:
    for r in JOB.ranks:
        path = tmp_path / name.format(r=r, pid=PIDS + r)
        path.parent.mkdir(exist_ok=True)
        write(path, JOB.log(r))
    result = tk.analyze(tmp_path, workers=1)
    assert ranks(result) == [(r, "groups", True) for r in JOB.ranks]
    check_calls(result)


def test_one_log_of_all_processes(tmp_path: Path) -> None:
    logs = [JOB.log(r) for r in JOB.ranks]
    write(tmp_path / "job-17.log", [line for same in zip(*logs, strict=False) for line in same])
    result = tk.analyze(tmp_path, workers=1)
    assert ranks(result) == [(r, "groups", True) for r in JOB.ranks]


def test_two_files_of_two_processes_each(tmp_path: Path) -> None:
    for host in range(2):
        a, b = JOB.log(2 * host), JOB.log(2 * host + 1)
        write(tmp_path / f"node{host}.log", [line for same in zip(a, b, strict=False) for line in same] + a[len(b) :])
    result = tk.analyze(tmp_path, workers=1)
    assert [r["rank"] for r in result.arrow("ranks").to_pylist()] == [*JOB.ranks]


def test_a_layout_that_the_user_states_gives_logs_their_labels(tmp_path: Path) -> None:
    for r in JOB.ranks:
        write(tmp_path / f"nccl.{r}.log", JOB.log(r))
    result = tk.analyze(tmp_path, workers=1, layout="tp=2,dp=2")
    found = {(r["op"], r["group_size"]): r["strategy"] for r in rows_of(result, 0)}
    assert found["all_reduce", 2] == "dp"
    assert found["reduce_scatter", 2] in ("tp", "sp")


def test_digits_in_the_name_of_a_log_are_no_rank(tmp_path: Path) -> None:
    write(tmp_path / "nccl.h0.3.log", JOB.log(1))  # one of four: its communicators do not tell
    assert ranks(tk.analyze(tmp_path, workers=1)) == [(None, "none", True)]


@pytest.mark.parametrize("how", [{"rank_regex": r"log\.(\d+)"}, {"rank_map": "map"}])
def test_the_user_states_the_ranks_of_logs(tmp_path: Path, how: dict[str, str]) -> None:
    (tmp_path / "in").mkdir()
    for r in (1, 2):
        write(tmp_path / "in" / f"log.{r}", JOB.log(r))
    (tmp_path / "map").write_text("log.1 1\nlog.2 2\n")
    how = {k: str(tmp_path / v) if k == "rank_map" else v for k, v in how.items()}
    result = tk.analyze(tmp_path / "in", workers=1, **how)
    assert ranks(result) == [(1, "map", True), (2, "map", True)]


def test_dump_and_log_of_a_rank_are_one_rank(tmp_path: Path) -> None:
    for r in JOB.ranks:
        write(tmp_path / f"nccl.{r}.log", JOB.log(r))
        write(tmp_path / f"inspector.{r}.log", JOB.inspector(r))
        JOB.recorder(r).write(tmp_path)
    result = tk.analyze(tmp_path, workers=1)
    assert ranks(result) == [(r, "groups", True) for r in JOB.ranks]
    for row, made in zip(rows_of(result, 2), JOB.calls(2), strict=True):
        assert (row["group_desc"], row["source_group"]) == (
            {"0": "default_pg", "1": "mesh_tp", "2": "mesh_ep", "3": "mesh_dp"}[made.group],
            "flight-recorder",
        )
        if made.op != "all_to_allv":
            assert (row["algorithm"], row["source_algorithm"]) == (made.algorithm, "nccl-log")
            assert row["exec_ns"] == made.dur
    use = {(f["format"], f["use"]) for f in result.arrow("files").to_pylist()}
    assert use == {("flight-recorder", "analysed"), ("nccl-log", "joined"), ("nccl-inspector", "joined")}


def test_of_two_dumps_of_a_rank_the_later_counts(tmp_path: Path) -> None:
    early, late = Job(steps=2), Job(steps=3)
    for r in JOB.ranks:
        early.recorder(r).write(tmp_path)
        path = tmp_path / f"comm_lib_trace_rank_{r}"
        shutil.move(path, tmp_path / f"early_rank_{r}")
        late.recorder(r).write(tmp_path)
    result = tk.analyze(tmp_path, workers=1)
    used = [r["source"] for r in result.arrow("ranks").to_pylist() if r["used"]]
    assert [path.rsplit("/", 1)[1] for path in used] == [f"comm_lib_trace_rank_{r}" for r in JOB.ranks]
    assert len(rows_of(result, 1)) == len(late.calls(1))


def test_both_forms_of_one_dump_beside_a_trace_count_once(tmp_path: Path) -> None:
    for r in JOB.ranks:
        JOB.kineto(tmp_path, r, range(2, 5))
        dump = JOB.recorder(r)
        dump.write(tmp_path)
        (tmp_path / f"fr_rank_{r}.json").write_bytes(flight_writer.as_json(dump.raw()))
    result = tk.analyze(tmp_path, workers=1)
    assert {r["witness"] for r in result.arrow("collectives").to_pylist()} == {"flight-recorder:seq"}
    assert all(r["frame"] for r in result.arrow("collectives").to_pylist())  # only the pickle has frames
    told = [h["example"] for h in result.run.tables["health"] if h["reason"] == "witness of doubtful identity"]
    assert len(told) == len(JOB.ranks)


def test_a_launcher_that_numbers_otherwise_than_the_communicator_is_noted(tmp_path: Path) -> None:
    for r in JOB.ranks:
        write(tmp_path / f"nccl.{r}.log", [f"[rank{3 - r}]: {line}" for line in JOB.log(r)])
    result = tk.analyze(tmp_path, workers=1)
    assert [r["rank"] for r in result.arrow("ranks").to_pylist()] == [*JOB.ranks]
    odd = [h for h in result.run.tables["health"] if h["reason"].startswith("rank as stated")]
    assert len(odd) == len(JOB.ranks)


def test_a_log_whose_rank_contradicts_the_traces_is_joined_by_process_and_noted(tmp_path: Path) -> None:
    for r in JOB.ranks:
        JOB.kineto(tmp_path, r, range(2, 5))
        write(tmp_path / f"nccl.{r}.log", [f"[rank{3 - r}]: {line}" for line in JOB.log(r)])
    result = tk.analyze(tmp_path, workers=1)
    assert {r["witness"] for r in result.arrow("collectives").to_pylist()} == {"nccl-log:seq"}
    found = [f["message"] for f in result.run.tables["findings"] if f["code"] == "witness-contradiction"]
    assert len(found) == len(JOB.ranks)
    assert sum("rank 3 instead of 0" in text for text in found) == 1


def test_a_dump_is_joined_with_the_trace_that_the_user_gives_its_rank(tmp_path: Path) -> None:
    import json

    for r in JOB.ranks:
        path = JOB.kineto(tmp_path, r, range(2, 5), seq=False, name="trace-{}x.json")
        data = json.loads(path.read_text())
        del data["distributedInfo"]
        path.write_text(json.dumps(data))
        JOB.recorder(r).write(tmp_path)
    (tmp_path / "map").write_text("".join(f"trace-{r}x.json {r}\n" for r in JOB.ranks))
    files = [p for p in tmp_path.iterdir() if p.name != "map"]
    result = tk.analyze(files, workers=1, rank_map=str(tmp_path / "map"))
    assert [r["identity"] for r in result.arrow("ranks").to_pylist()] == ["map"] * len(JOB.ranks)
    for rank in JOB.ranks:
        assert [r["seq"] for r in rows_of(result, rank)] == [
            c.number + 1 for c in JOB.calls(rank) if c.step in range(2, 5)
        ]
        assert {r["witness"] for r in rows_of(result, rank)} == {"flight-recorder:time"}


def test_logs_without_a_rank_are_all_kept(tmp_path: Path) -> None:
    """A log is missing, so nothing tells the ranks; processes that did the same are no copies of each other."""
    for r in (0, 1, 2):
        write(tmp_path / f"nccl.{r}.log", JOB.log(r))
    result = tk.analyze(tmp_path, workers=1)
    assert ranks(result) == [(None, "none", True)] * 3
    assert len(result.arrow("collectives")) == 3 * len(JOB.calls(0))


@pytest.mark.parametrize("number", [3, 4])
def test_a_copy_of_a_log_takes_nobodys_seat(tmp_path: Path, number: int) -> None:
    """All ranks are told as without copies, and each copy is named with its original."""
    for r in JOB.ranks:
        write(tmp_path / f"a.{r}.log", JOB.log(r))
        if r < number:
            shutil.copy(tmp_path / f"a.{r}.log", tmp_path / f"copy of {r}.log")
    result = tk.analyze(tmp_path, workers=1)
    assert {(r, used) for r, _, used in ranks(result)} == {(r, True) for r in JOB.ranks} | {
        (r, False) for r in range(number)
    }
    check_calls(result)
    left = [f["message"] for f in result.run.tables["findings"] if f["code"] == "duplicate-rank"]
    assert len(left) == number
    assert all("the same recording as" in m for m in left)


WHERE: dict[str, Any] = {"schema": "1.0.2-chakra.0.0.4", "where": (4,)}


def test_execution_traces_without_a_rank_that_tell_the_same_are_no_copies(tmp_path: Path) -> None:
    """Nothing in them names the process, so only a file that is the same as a whole is a copy."""
    for name, extra in (("a", "one"), ("b", "two"), ("copy", "one")):
        (tmp_path / f"{name}.json").write_text(et_writer.trace(et_writer.record(5, **WHERE), et_writer.node(9, extra)))
    result = tk.analyze(tmp_path, workers=1)
    assert [(r, used) for r, _, used in ranks(result)] == [(None, True), (None, True), (None, False)]
    (left,) = [f["message"] for f in result.run.tables["findings"] if f["code"] == "duplicate-file"]
    assert left.startswith(f"{tmp_path / 'copy.json'} left out: the same recording as {tmp_path / 'a.json'}")


def test_an_execution_trace_stands_before_a_log_of_its_rank(tmp_path: Path) -> None:
    """It has the operators around each call, which label it; both are accounts of rank 0."""
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / "et.json").write_text(et_writer.trace(et_writer.record(5, rank=0, where=(0, 1, 4))))
    write(tmp_path / "rank0" / "nccl.log", JOB.log(0))
    result = tk.analyze(tmp_path, workers=1)
    use = {f["format"]: f["use"] for f in result.run.tables["files"]}
    assert use["execution-trace"] == "analysed"
    assert use["nccl-log"] != "analysed"
