"""One small job told by Kineto, NCCL's log, the Inspector and the flight recorder: what is joined, and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from job_writer import Job, write

import tracekit as tk

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job()
INNER = range(2, 5)
RANKS = JOB.ranks


def traces(folder: Path, steps: range = INNER, **how: Any) -> None:
    for r in RANKS:
        JOB.kineto(folder, r, steps, **how)


def truth(rank: int, steps: range = INNER) -> list[Any]:
    return [c for c in JOB.calls(rank) if c.step in steps]


def rows_of(result: Any, rank: int) -> list[dict[str, Any]]:
    rows = [r for r in result.arrow("collectives").to_pylist() if r["rank"] == rank]
    return sorted(rows, key=lambda r: r["id"])


def reasons(result: Any) -> list[str]:
    return [h["reason"] for h in result.run.tables["health"]]


def test_logs_of_every_rank_give_algorithm_protocol_and_channels(tmp_path: Path) -> None:
    traces(tmp_path)
    for r in RANKS:
        write(tmp_path / f"nccl.h0.{r}.log", JOB.log(r))
    result = tk.analyze(tmp_path, workers=1)
    for rank in RANKS:
        for row, made in zip(rows_of(result, rank), truth(rank), strict=True):
            assert row["witness"] == "nccl-log:seq"
            if made.op == "all_to_allv":
                assert (row["op"], row["algorithm"], row["source_algorithm"]) == ("all_to_all", None, None)
                continue
            assert (row["algorithm"], row["protocol"], row["channels"]) == (
                made.algorithm,
                made.protocol,
                made.channels,
            )
            assert row["source_algorithm"] == "nccl-log"  # printed by the first rank of each group, true of all
            assert (row["source_group"], row["source_seq"], row["source_size"]) == ("trace",) * 3
    assert not [r for r in reasons(result) if "contradict" in r or "does not hold" in r]


def test_one_log_of_all_ranks_interleaved_and_in_another_order(tmp_path: Path) -> None:
    traces(tmp_path)
    logs = [JOB.log(r, order="0213") for r in reversed(RANKS)]
    mixed = [line for group in zip(*logs, strict=False) for line in group]
    mixed += [line for lines in logs for line in lines[min(map(len, logs)) :]]
    write(tmp_path / "all.log", mixed)
    result = tk.analyze(tmp_path, workers=1)
    rows = result.arrow("collectives").to_pylist()
    assert {r["witness"] for r in rows} == {"nccl-log:seq"}
    assert result.run.witnesses == {r: [str(tmp_path / "all.log")] for r in RANKS}


def test_steps_that_repeat_are_told_apart_by_number_only(tmp_path: Path) -> None:
    """Without sequence numbers in the trace the log cannot say which step it was, yet the choice is the same in all."""
    traces(tmp_path, seq=False)
    for r in RANKS:
        write(tmp_path / f"nccl.{r}.log", JOB.log(r))
    result = tk.analyze(tmp_path, workers=1)
    for row, made in zip(rows_of(result, 0), truth(0), strict=True):
        assert row["witness"] == "nccl-log:alike"
        if made.op != "all_to_allv":
            assert (row["algorithm"], row["channels"]) == (made.algorithm, made.channels)


def test_the_inspectors_durations_find_their_step_and_calls_that_it_left_out_stay_empty(tmp_path: Path) -> None:
    traces(tmp_path)
    for r in RANKS:
        write(tmp_path / f"h0-pid{r}.log", JOB.inspector(r, least=1100))
    result = tk.analyze(tmp_path, workers=1)
    for rank in RANKS:
        for row, made in zip(rows_of(result, rank), truth(rank), strict=True):
            small = min(made.count_in, made.count_out) * (2 if made.dtype == "BFloat16" else 4) < 1100
            if made.op == "all_to_allv" or small:
                assert (row["witness"], row["exec_ns"], row["source_duration"]) == (None, None, None)
            else:
                assert row["witness"] == "nccl-inspector:duration"
                assert row["exec_ns"] == made.dur
                assert (row["exec_busbw_gbps"], row["source_duration"]) == (1.5, "nccl-inspector")


@pytest.mark.parametrize("offset", [0, 86_400_000_000_000, -3_000_000_000])
def test_a_verbose_inspector_log_is_tied_by_time_whatever_its_clock(tmp_path: Path, offset: int) -> None:
    traces(tmp_path)
    for r in RANKS:
        write(tmp_path / f"h0-pid{r}.log", JOB.inspector(r, verbose=True, offset=offset))
    result = tk.analyze(tmp_path, workers=1)
    for row, made in zip(rows_of(result, 1), truth(1), strict=True):
        if made.op != "all_to_allv":
            assert row["witness"] == "nccl-inspector:time"
            assert row["exec_ns"] == made.dur


def test_another_jobs_logs_are_not_joined_and_are_named(tmp_path: Path) -> None:
    traces(tmp_path)
    for r in RANKS:
        write(tmp_path / f"nccl.{r}.log", JOB.log(r, pid=7000 + r))
        write(tmp_path / f"inspector.{r}.log", JOB.inspector(r, pid=8000 + r))
    result = tk.analyze(tmp_path, workers=1)
    assert {r["witness"] for r in result.arrow("collectives").to_pylist()} == {None}
    left = [h for h in result.run.tables["health"] if h["reason"].endswith("of no trace here, not joined")]
    assert len(left) == 2 * len(RANKS)
    assert "process h0:7000" in min(h["example"] for h in left)


def test_a_user_ties_a_log_to_a_rank_although_the_process_differs(tmp_path: Path) -> None:
    traces(tmp_path)
    write(tmp_path / "a.log", JOB.log(2, pid=7000))
    (tmp_path / "map").write_text("a.log 2\n")
    result = tk.analyze(tmp_path, workers=1, rank_map=str(tmp_path / "map"))
    assert {r["witness"] for r in rows_of(result, 2)} == {"nccl-log:seq"}
    assert {r["witness"] for r in rows_of(result, 1)} == {None}


def test_everything_together_each_field_from_who_knows_it(tmp_path: Path) -> None:
    traces(tmp_path, seq=False)
    for r in RANKS:
        write(tmp_path / f"nccl.{r}.log", JOB.log(r))
        write(tmp_path / f"inspector.{r}.log", JOB.inspector(r))
        JOB.recorder(r).write(tmp_path)
    result = tk.analyze(tmp_path, workers=1)
    for row, made in zip(rows_of(result, 3), truth(3), strict=True):
        assert row["frame"] == f"/job/train.py({10 + made.step}): train_step"
        assert (row["seq"], row["source_seq"]) == (made.number + 1, "flight-recorder")
        assert (row["source_frame"], row["source_group"]) == ("flight-recorder", "trace")
        if made.op != "all_to_allv":
            assert (row["algorithm"], row["source_algorithm"]) == (made.algorithm, "nccl-log")
            assert (row["exec_ns"], row["source_duration"]) == (made.dur, "nccl-inspector")
            assert row["witness"] == "flight-recorder:time nccl-inspector:duration nccl-log:seq"


def test_a_log_with_lost_lines_still_fits_by_its_numbers(tmp_path: Path) -> None:
    traces(tmp_path)
    for r in RANKS:
        write(tmp_path / f"nccl.{r}.log", JOB.log(r, skip=11))
    result = tk.analyze(tmp_path, workers=1)
    for rank in RANKS:
        lost = {i for i in range(len(JOB.calls(rank))) if i % 11 == 10}
        for row, (i, made) in zip(
            rows_of(result, rank), [(i, c) for i, c in enumerate(JOB.calls(rank)) if c.step in INNER], strict=True
        ):
            assert (row["witness"] is None) is (i in lost)
            if i not in lost and made.op != "all_to_allv":
                assert row["algorithm"] == made.algorithm


def test_sizes_that_contradict_are_counted_and_not_tied(tmp_path: Path) -> None:
    job = Job(steps=40)
    for r in RANKS:
        job.kineto(tmp_path, r, range(40))
        lines = job.log(r)
        at = next(i for i, line in enumerate(lines) if "AllReduce: opCount 14 " in line and "count 8192 " in line)
        lines[at] = lines[at].replace("count 8192 ", "count 4096 ")
        write(tmp_path / f"nccl.{r}.log", lines)
    result = tk.analyze(tmp_path, workers=1)
    odd = [h for h in result.run.tables["health"] if "contradict" in h["reason"]]
    assert [(h["count"], "operation or size" in h["reason"]) for h in odd] == [(1, True)] * len(RANKS)
    loose = [r for r in rows_of(result, 0) if r["witness"] is None]
    assert [(r["op"], r["payload_bytes"], r["seq"]) for r in loose] == [("all_reduce", 32768, 21)]
    found = [f for f in result.run.tables["findings"] if f["code"] == "witness-contradiction"]
    assert [f["rank"] for f in found] == [*RANKS]


def test_dumps_of_the_profiler_plugin_tell_choices_although_not_which_step(tmp_path: Path) -> None:
    traces(tmp_path)
    for r in RANKS:
        write(tmp_path / f"dump_{r}.json", JOB.plugin(r))
    result = tk.analyze(tmp_path, workers=1)
    for row, made in zip(rows_of(result, 1), truth(1), strict=True):
        if made.op == "all_to_allv":
            assert row["witness"] is None
        else:
            assert row["witness"] == "nccl-profiler:alike"
            assert (row["algorithm"], row["protocol"], row["channels"]) == (
                made.algorithm,
                made.protocol,
                made.channels,
            )


def test_a_size_that_needs_the_group_is_not_guessed(tmp_path: Path) -> None:
    for r in RANKS:
        write(tmp_path / f"dump_{r}.json", JOB.plugin(r))
    rows = tk.analyze(tmp_path, workers=1).arrow("collectives").to_pylist()
    assert {r["payload_bytes"] for r in rows if r["op"] == "all_gather"} == {None}  # the dump has no size of groups
    assert {r["payload_bytes"] for r in rows if r["op"] == "all_reduce"} == {16, 32768}


@pytest.mark.parametrize("part", [3, 2])
def test_a_log_whose_beginning_is_lost_is_tied_by_number_not_by_its_first_line(tmp_path: Path, part: int) -> None:
    """No initialisation, first numbers above 0: the job repeats itself, so laying first to first would be a step off."""
    traces(tmp_path)
    kept: dict[int, list[str]] = {}
    for r in RANKS:
        lines = JOB.log(r)
        kept[r] = lines[len(lines) // part :]
        write(tmp_path / f"nccl.{r}.log", kept[r])
    result = tk.analyze(tmp_path, workers=1)
    for rank in RANKS:
        there = {
            (pair[0], int(pair[1], 16))
            for line in kept[rank]
            for pair in [(line.split(" comm 0x55d0")[-1][:2], line.split("opCount ")[-1].split(" ")[0])]
            if "opCount" in line
        }
        for row, made in zip(rows_of(result, rank), truth(rank), strict=True):
            held = (f"0{made.group}", made.number) in there
            assert row["witness"] == ("nccl-log:seq" if held else None)


def test_a_log_whose_end_is_lost_is_not_tied_to_other_steps(tmp_path: Path) -> None:
    """It holds as many steps as the trace, but earlier ones: all calls fit two steps off, but their numbers do not."""
    traces(tmp_path)
    for r in RANKS:
        write(tmp_path / f"nccl.{r}.log", ended(JOB.log(r), 3))
    result = tk.analyze(tmp_path, workers=1)
    ways = {r["witness"] for r in result.arrow("collectives").to_pylist()}
    assert ways <= {None, "nccl-log:seq", "nccl-log:alike"}


def ended(lines: list[str], steps: int) -> list[str]:
    """The lines until the last all-reduce over all ranks of that many steps."""
    last = [i for i, line in enumerate(lines) if "count 4 " in line][steps - 1]
    return lines[: last + 1]
