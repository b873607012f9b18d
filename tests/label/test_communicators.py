"""Which communicator is which process group, where members alone do not tell."""

from __future__ import annotations

from tracekit.label import load_rules
from tracekit.label.communicators import join_nccl
from tracekit.label.witness import no_activities
from tracekit.model import Call, LabelledRank, ProcessGroup, TraceMeta, Witness, WitnessCall, WitnessGroup

WORDS = load_rules().vocabulary


def trace(*calls: tuple[str | None, int], members: tuple[int, ...] | None = (0, 1)) -> LabelledRank:
    """(group, bytes) of each all-reduce."""
    groups = tuple(ProcessGroup(n, None, 2, members) for n in dict.fromkeys(g for g, _ in calls) if n is not None)
    made = [
        Call("all_reduce", "allreduce", group_name=g, group_size=2 if g else None, members=members if g else None,
             payload_bytes=n)
        for g, n in calls
    ]  # fmt: skip
    return LabelledRank(TraceMeta("t", rank=0, groups=groups), 0, no_activities(), made, [], {}, [], (0, 1))


def log(*calls: tuple[str, int], ranks: tuple[int, ...] | None = (0, 1)) -> Witness:
    """(communicator, bytes) of each all-reduce, in order."""
    names = list(dict.fromkeys(c for c, _ in calls))
    groups = [WitnessGroup(n, size=2, own=0, ranks=ranks, comm_hash=n) for n in names]
    count = dict.fromkeys(names, -1)
    out = []
    for i, (name, nbytes) in enumerate(calls):
        count[name] += 1
        out.append(
            WitnessCall("AllReduce", name, count[name], op_id=count[name], record=i, payload_bytes=nbytes,
                        extra={"algorithm": f"of {name}"})
        )  # fmt: skip
    return Witness(TraceMeta("log", rank=0), "nccl-log", groups, out, lost=0)


def choices(rank: LabelledRank) -> list[str | None]:
    return [c.algorithm for c in rank.calls]


def test_the_calls_themselves_tell_groups_of_the_same_members_apart() -> None:
    rank = trace(("5", 4), ("6", 8), ("5", 16), ("6", 8))
    join_nccl(rank, log(("x", 8), ("x", 8), ("y", 4), ("y", 16)), WORDS)
    assert choices(rank) == ["of y", "of x", "of y", "of x"]


def test_groups_that_do_the_same_are_told_by_their_creation() -> None:
    rank = trace(("12", 4), ("7", 4))
    join_nccl(rank, log(("x", 4), ("y", 4)), WORDS)
    assert choices(rank) == ["of y", "of x"]  # 7 was created before 12
    assert {c.witness for c in rank.calls} == {"nccl-log:order+creation"}


def test_more_communicators_than_groups_that_fit_alike_tie_none() -> None:
    rank = trace(("5", 4))
    join_nccl(rank, log(("x", 4), ("y", 4)), WORDS)
    assert choices(rank) == [None]
    assert [h.count for h in rank.health if "fit several groups alike" in h.reason] == [2]


def test_other_members_are_another_group() -> None:
    rank = trace(("5", 4))
    join_nccl(rank, log(("x", 4), ranks=(0, 2)), WORDS)
    assert choices(rank) == [None]


def test_a_trace_without_groups_gets_them_from_the_order_of_all_calls() -> None:
    rank = trace((None, 4), (None, 8), (None, 4), (None, 32))
    join_nccl(rank, log(("x", 4), ("y", 8), ("x", 4), ("y", 32)), WORDS)
    assert choices(rank) == ["of x", "of y", "of x", "of y"]
    assert [(c.group_name, c.members, c.group_size) for c in rank.calls][:2] == [("x", (0, 1), 2), ("y", (0, 1), 2)]
    assert dict(rank.calls[0].sources)["group"] == "nccl-log"
