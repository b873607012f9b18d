"""Minority labels and coverage, by hand-made labels."""

from __future__ import annotations

from analysis_builder import Act, rank
from msgspec.structs import replace

from tracekit.analysis.consistency import Kind as Votes
from tracekit.analysis.consistency import minorities
from tracekit.analysis.coverage import conflicts, coverage, unlabelled_sites
from tracekit.model import Call, Kind, Label, LabelledRank

SUM = Votes("0-3", "tp", "all_reduce", "Float", 1024)


def said(**steps: str) -> dict[Votes, dict[int, frozenset[str]]]:
    return {SUM: {int(s[1:]): frozenset(v.split("+")) for s, v in steps.items()}}


def test_a_rank_that_labels_the_same_kind_of_call_otherwise_is_a_finding():
    found = minorities([(r, said(s1="tp", s2="tp")) for r in range(3)] + [(3, said(s1="sp", s2="sp"))])
    assert [f["code"] for f in found] == ["label-minority"]
    assert found[0]["rank"] == 3
    assert "labelled sp on rank 3 in 2 steps, but tp in 6 others" in found[0]["message"]


def test_a_step_that_differs_is_a_finding_too():
    [found] = minorities([(0, said(s1="tp", s2="tp", s3="dp"))])
    assert found["rank"] == 0
    assert "dp on rank 0 in 1 steps" in found["message"]


def test_equal_sets_and_missing_labels_are_no_finding():
    assert minorities([(0, said(s1="tp+dp")), (1, said(s1="dp+tp"))]) == []
    assert minorities([(0, said(s1="tp")), (1, said(s1="unknown"))]) == []


def test_the_order_of_ranks_does_not_matter():
    ballots = [(r, said(s1="tp" if r else "dp")) for r in range(4)]
    assert minorities(ballots) == minorities(ballots[::-1])


def calls_with(*labels: Label) -> list[Call]:
    return [
        Call("all_reduce", "allreduce", call_ts=10 * i, payload_bytes=100, group_desc="g", label=label)
        for i, label in enumerate(labels)
    ]


def rank_of(calls: list[Call], durations: list[int]) -> LabelledRank:
    acts = [Act(100 * i, 100 * i + d, Kind.COMM, call=i) for i, d in enumerate(durations)]
    return rank(acts, calls)


def test_coverage_counts_time_bytes_and_calls_by_tier():
    a, b = Label("tp", tier="A", confidence=0.9), Label("dp", tier="C", confidence=0.6)
    one = rank_of(calls_with(a, a, b, Label()), durations=[5, 5, 7, 3])
    found = coverage(one)
    assert (found["comm_ns"], found["labelled_ns"]) == (20, 17)
    assert (found["bytes"], found["labelled_bytes"]) == (400, 300)
    assert (found["calls"], found["labelled_calls"]) == (4, 3)
    assert found["tiers"] == {"A": 10, "C": 7}
    assert found["tier_bytes"] == {"A": 200, "C": 100}


def test_unlabelled_sites_say_what_was_seen_and_what_remains_possible():
    doubt = Label(alternatives=(("tp", 0.4), ("dp", 0.3)))
    one = rank_of(calls_with(doubt, doubt, Label("tp", tier="A")), durations=[5, 6, 7])
    [site] = unlabelled_sites(one)
    assert (site["count"], site["total_ns"], site["bytes"], site["payload_bytes"], site["example"]) == (
        2,
        11,
        200,
        100,
        0,
    )
    assert site["alternatives"] == "tp dp"


def test_a_conflict_is_a_finding_that_names_both_sides():
    clash = Label("conflict", alternatives=(("tp", 0.97), ("cp", 0.96)))
    one = rank_of(calls_with(clash, clash), durations=[1, 1])
    [found] = conflicts(replace(one, rank=7))
    assert found["code"] == "label-conflict"
    assert "2 calls have contradicting evidence for cp and tp" in found["message"]
    assert "--collective 7:0" in found["message"]
