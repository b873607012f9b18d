"""Hangs whose cause is known because the test made it: is the rank found, with the reason and the chain?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from flight_writer import Rank, as_json

from tracekit.commands import cli
from tracekit.errors import UnusableInput
from tracekit.ingest.hanging import post_mortem

if TYPE_CHECKING:
    from pathlib import Path

WORLD = 4
TP = [("1", "mesh_tp", (0, 1)), ("2", "mesh_tp", (2, 3))]
PP = [("3", "mesh_pp", (0, 2)), ("4", "mesh_pp", (1, 3))]


def job(*, begun: int = 3) -> list[Rank]:
    """tp=2, pp=2; `begun` all-reduces of every tensor group are done."""
    ranks = [Rank(r, *TP, *PP, world=WORLD) for r in range(WORLD)]
    for rank in ranks:
        for _ in range(begun):
            rank.call("1" if rank.rank < 2 else "2")
    return ranks


def found(tmp_path: Path, ranks: list[Rank], **how: Any) -> dict[str, Any]:
    """The post-mortem of these ranks' dumps."""
    for rank in ranks:
        rank.write(tmp_path, **how)
    return post_mortem([tmp_path])


def suspects(result: dict[str, Any]) -> list[tuple[int, str]]:
    """(rank, kind) of each suspect."""
    return [(s["rank"], s["kind"]) for s in result["suspects"]]


@pytest.mark.parametrize("active_only", [True, False])
def test_a_rank_that_stopped_issuing_is_found_through_the_pipeline(tmp_path: Path, active_only: bool) -> None:
    ranks = job()
    ranks[2].call("2", state="scheduled")  # rank 3 never issues it
    ranks[0].call("3", "recv 0<-1", "scheduled")  # and so rank 2 never sends
    ranks[1].call("1", state="scheduled")
    result = found(tmp_path, ranks, active_only=active_only)
    assert suspects(result) == [(3, "silent")]
    (one,) = result["suspects"]
    assert one["waiting"] == [0, 1, 2]
    assert [(h["rank"], h["on"], h["why"], h["strategy"]) for h in one["chain"]] == [
        (1, 0, "missing", "tp"), (0, 2, "behind", "pp"), (2, 3, "missing", "tp"),
    ]  # fmt: skip
    assert one["confidence"] == 0.9
    assert "Rank 3 stopped issuing calls" in result["verdict"]
    assert "tp all_reduce 4 of mesh_tp 2" in result["verdict"]
    stuck = next(s for s in result["stuck"] if s["group_name"] == "2")
    assert (stuck["seq"], stuck["waiting"], stuck["waits_for"]) == (4, [2], {"missing": [3]})
    assert stuck["frames"] == ["/job/train.py(13): step"]


def test_a_rank_whose_device_stopped_is_found_although_it_issues_on(tmp_path: Path) -> None:
    ranks = job()
    for _ in range(3):
        ranks[2].call("2")
        ranks[3].call("2", state="scheduled")
    for _ in range(2):
        ranks[2].call("2", state="scheduled")
    result = found(tmp_path, ranks, active_only=True)
    assert suspects(result) == [(3, "held")]
    assert "rank 2 completed what it still has pending" in result["verdict"]
    group = next(g for g in result["groups"] if g["group_name"] == "2")
    assert [(r["rank"], r["enqueued"], r["completed"]) for r in group["ranks"]] == [(2, 8, 6), (3, 6, 3)]


def test_a_killed_rank_leaves_no_dump(tmp_path: Path) -> None:
    ranks = job()
    ranks[2].call("2", state="scheduled")
    result = found(tmp_path, ranks[:3])
    assert suspects(result) == [(3, "no-dump")]
    assert result["without_dump"] == [3]
    assert result["confidence"] == pytest.approx(0.9 * 3 / 4, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"op": "_allgather_base", "sizes": [[4, 8]]}, "operation"),
        ({"sizes": [[4, 9]]}, "size"),
        ({"input_dtypes": ["Float"], "output_dtypes": ["Float"]}, "type"),
    ],
)
def test_the_rank_that_does_something_else_is_named_with_both_sides(
    tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    ranks = [Rank(r, world=3) for r in range(3)]
    for rank in ranks:
        rank.call("0")
        rank.call("0", state="scheduled", **(change if rank.rank == 1 else {}))
    result = found(tmp_path, ranks)
    assert suspects(result) == [(1, "diverged")]
    (one,) = result["divergences"]
    assert (one["seq"], one["what"], one["culprits"]) == (2, what, [1])
    assert one["values"][0]["value"] == one["values"][2]["value"] != one["values"][1]["value"]
    assert one["frames"] == one["frames_of_others"] == ["/job/train.py(11): step"]
    assert "Rank 1 did something else" in result["verdict"]


def test_of_two_ranks_that_differ_neither_is_accused(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2) for r in range(2)]
    for rank in ranks:
        rank.call("0", state="scheduled", sizes=[[4 + rank.rank]])
    result = found(tmp_path, ranks)
    assert suspects(result) == []
    assert [d["culprits"] for d in result["divergences"]] == [[]]
    assert {v["rank"] for v in result["divergences"][0]["values"]} == {0, 1}


def test_sizes_that_may_differ_do(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2) for r in range(2)]
    sent = ([[3]], [[5]]), ([[6]], [[4]])
    for rank, (given, taken) in zip(ranks, sent, strict=True):
        rank.call("0", "all_to_all", input_sizes=given, output_sizes=taken)
        rank.call("0", "_all_gather_base", input_sizes=[[4]], output_sizes=[[8]])
        rank.call("0", "_reduce_scatter_base", input_sizes=[[8]], output_sizes=[[4]])
        rank.call("0", "gather", output_sizes=[[4, 8]] * 2 if rank.rank == 0 else [])
        rank.call("0", "scatter", input_sizes=[[4, 8]] * 2 if rank.rank == 0 else [])
    assert found(tmp_path, ranks)["divergences"] == []


@pytest.mark.parametrize(
    ("op", "given", "taken"),
    [("_all_gather_base", [[4]], [[4]]), ("_reduce_scatter_base", [[4]], [[4]]), ("all_to_all", [[4]], [[5]])],
)
def test_sizes_that_agree_and_are_wrong_are_told(tmp_path: Path, op: str, given: Any, taken: Any) -> None:
    ranks = [Rank(r, world=2).call("0", op, input_sizes=given, output_sizes=taken) for r in range(2)]
    (one,) = found(tmp_path, ranks)["divergences"]
    assert (one["what"], one["culprits"]) == ("size", [])


def test_ranks_that_wait_for_each_other_in_a_circle_are_all_suspects(tmp_path: Path) -> None:
    groups = [("1", "mesh_dp", (0, 1)), ("2", "mesh_tp", (0, 1))]
    ranks = [Rank(r, *groups) for r in range(2)]
    ranks[0].call("1", state="scheduled").call("2", state="scheduled")
    ranks[1].call("2", state="scheduled").call("1", state="scheduled")
    result = found(tmp_path, ranks)
    assert suspects(result) == [(0, "circle"), (1, "circle")]
    assert result["confidence"] == 0.4


def test_all_members_in_one_call_accuse_nobody(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2).call("0", state="started") for r in range(2)]
    result = found(tmp_path, ranks)
    assert result["suspects"] == []
    assert result["confidence"] is None
    assert "the transfer itself" in result["verdict"]
    assert result["stuck"][0]["all_there"]


def test_a_device_that_never_began_the_call_is_told_from_those_that_did(tmp_path: Path) -> None:
    ranks = [Rank(r, world=3).call("0", state="scheduled" if r == 2 else "started") for r in range(3)]
    assert suspects(found(tmp_path, ranks)) == [(2, "not-started")]


def test_both_sides_of_one_transfer_accuse_nobody(tmp_path: Path) -> None:
    ranks = [Rank(0, world=2).call("0", "send 0->1", "started"), Rank(1, world=2).call("0", "recv 1<-0", "started")]
    assert found(tmp_path, ranks)["suspects"] == []


def test_two_sends_that_face_each_other_are_a_circle(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2).call("0", f"send {r}->{1 - r}", "started") for r in range(2)]
    assert suspects(found(tmp_path, ranks)) == [(0, "circle"), (1, "circle")]


def test_nothing_pending_is_no_hang(tmp_path: Path) -> None:
    result = found(tmp_path, job())
    assert (result["hung"], result["suspects"], result["confidence"]) == (False, [], None)


def test_gloo_retires_calls_that_stay_scheduled(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2).call("0", state="scheduled", retired=True) for r in range(2)]
    assert not found(tmp_path, ranks)["hung"]


def test_a_counter_alone_tells_that_something_is_pending(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2) for r in range(2)]
    for rank in ranks:
        rank.call("0")
    ranks[0].seq["0"] = 5  # the ring has lost what came after
    result = found(tmp_path, ranks)
    assert suspects(result) == [(1, "silent")]
    assert result["stuck"][0]["waits_for"] == {"missing": [1]}


def test_a_dump_of_both_forms_counts_once_and_the_one_with_frames_is_used(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2).call("0", state="scheduled" if r == 0 else "completed") for r in range(2)]
    (tmp_path / "fr_rank0.json").write_bytes(as_json(ranks[0].raw()))
    result = found(tmp_path, ranks)
    assert result["ranks"] == [0, 1]
    assert result["stuck"][0]["frames"]


def test_damaged_dumps_are_noted_or_refused(tmp_path: Path) -> None:
    ranks = [Rank(r, world=2).call("0") for r in range(2)]
    path = ranks[1].write(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    assert any("damaged" in n for n in found(tmp_path, ranks[:1])["notes"])
    with pytest.raises(UnusableInput, match="damaged"):
        post_mortem([tmp_path], strict=True)


def test_without_dumps_there_is_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"traceEvents": []}')
    with pytest.raises(UnusableInput, match="flight recorder"):
        post_mortem([tmp_path])


def test_the_command_prints_the_verdict_and_json(tmp_path: Path) -> None:
    ranks = job()
    ranks[2].call("2", state="scheduled")
    found(tmp_path, ranks)
    shown = CliRunner().invoke(cli, ["hang", str(tmp_path)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "Rank 3 stopped issuing calls" in shown.output
    assert "mesh_tp" in shown.output
    asked = CliRunner().invoke(cli, ["hang", str(tmp_path), "--json"], catch_exceptions=False)
    assert json.loads(asked.output)["suspects"][0]["rank"] == 3


def test_a_dump_older_than_its_peers_accuses_nobody_of_having_stopped(tmp_path: Path) -> None:
    """Ranks 0, 1 and 3 saw call 8 complete, which takes all ranks: so rank 2 issued it, after its dump."""
    ranks = [Rank(r, world=WORLD) for r in range(WORLD)]
    for rank in ranks:
        for _ in range(4 if rank.rank == 2 else 8):
            rank.call("0")
    for r in (0, 1, 3):
        ranks[r].call("0", state="started")
    result = found(tmp_path, ranks)
    assert [(u["rank"], "older than rank 0's" in u["reason"]) for u in result["useless"]] == [(2, True)]
    assert suspects(result) == [(2, "no-dump")]
    assert result["suspects"][0]["confidence"] == pytest.approx(0.9 * 3 / 4, abs=1e-3)
    assert result["ranks"] == [0, 1, 2, 3]
    assert any("rank 2: its dump is older" in n for n in result["notes"])


def test_dumps_of_a_running_job_taken_at_different_times_hold_nobody_up(tmp_path: Path) -> None:
    ranks = [Rank(r, world=WORLD) for r in range(WORLD)]
    for rank in ranks:
        for _ in range(10 if rank.rank == 3 else 4):
            rank.call("0")
    for r in (0, 1, 2):
        ranks[r].call("0", state="started")
    result = found(tmp_path, ranks)
    assert (result["hung"], result["suspects"]) == (False, [])
    assert [u["rank"] for u in result["useless"]] == [0, 1, 2]


def test_a_broadcast_that_completed_dates_no_dump(tmp_path: Path) -> None:
    """Its root goes on before the others have issued it."""
    ranks = [Rank(r, world=WORLD) for r in range(WORLD)]
    for rank in ranks:
        rank.call("0")
    ranks[0].call("0", "broadcast").call("0", state="started")
    result = found(tmp_path, ranks)
    assert result["useless"] == []
    assert suspects(result) == [(1, "silent"), (2, "silent"), (3, "silent")]


def test_an_empty_dump_is_as_good_as_none(tmp_path: Path) -> None:
    ranks = [Rank(r, world=WORLD) for r in range(WORLD)]
    for rank in ranks:
        for _ in range(4 if rank.rank != 2 else 0):
            rank.call("0")
        if rank.rank != 2:
            rank.call("0", state="started")
    result = found(tmp_path, ranks)
    assert suspects(result) == [(2, "no-dump")]
    assert "its dump is empty" in result["verdict"]
    assert not any(row["all_there"] for row in result["stuck"])


def test_dumps_of_two_hangs_are_not_mixed(tmp_path: Path) -> None:
    """The earlier set has a rank that the later one lacks: it is another hang's."""
    for name, clock, there in (("first", 0, range(WORLD)), ("second", 3_600_000_000_000, range(3))):
        (tmp_path / name).mkdir()
        for r in there:
            rank = Rank(r, world=WORLD)
            rank.clock += clock
            rank.call("0").call("0", state="started" if r != 3 else "completed")
            rank.write(tmp_path / name)
    result = post_mortem([tmp_path])
    assert result["ranks"] == [0, 1, 2]
    assert suspects(result) == [(3, "no-dump")]
    assert any("rank 3's, which the later set lacks" in n for n in result["notes"])
