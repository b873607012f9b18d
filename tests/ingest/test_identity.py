"""Which rank a trace is, and which traces are left out: one case a rule."""

from __future__ import annotations

import itertools

import pytest

from tracekit.errors import UsageError
from tracekit.ingest.identity import Part, compress, coordinates_in_name, rank_in_name, resolve
from tracekit.ingest.usermap import user_ranks
from tracekit.model import TraceMeta

S = 1_000_000_000
NOW = 1_700_000_000 * S


def part(path: str, rank: int | None = None, world: int | None = None, start: int = 0, **meta: object) -> Part:
    """A trace recorded `start` seconds after NOW, one second long."""
    about = TraceMeta(path=path, rank=rank, world_size=world, **meta)  # type: ignore[arg-type]
    window = (NOW + start * S, NOW + (start + 1) * S)
    return Part(about, window, 100, digest=f"{path}{rank}")


def outcome(parts: list[Part], **how: object) -> dict[str, tuple[int | None, bool]]:
    """path → (rank, used)"""
    resolve(parts, **how)  # type: ignore[arg-type]
    return {p.meta.path: (p.rank, p.used) for p in parts}


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("iteration_6/rank000003_trace.json.gz", 3),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json", 34),
        ("modded-nanogpt-gpu-rank-00-chrome-trace.json.gz", 0),
        ("run/trace-rank[12].json", 12),
        ("run/trace-rank-7.json", 7),
        ("run/rank_5/trace.json", 5),
        ("run/rank5/host_1234.1743406976912802812.pt.trace.json", 5),
        ("rank1/trace_rank2.json", 2),
        ("worker2.pt.trace.json", 2),
        ("ip-172-31-16-248_21147.1698955063520869240.pt.trace.json", None),
        ("node3_4117.1743406976912802812.pt.trace.json", None),
        ("frank3.json", None),
        ("trace.json", None),
        ("dp0_pp0_tp1_dcp0_ep1_rank5.1767189312.pt.trace.json.gz", 5),
        ("mp_rank_00_model.json", None),
        ("tp_rank_1_dp_rank_0.json", None),
        ("local_rank_3.json", None),
        ("tp_rank_1_rank_9.json", 9),
        ("rank1-vs-rank2.json", None),
        ("ranks0-7.json", None),
        ("forward_decode_0/rank2.json", 2),
    ],
)
def test_rank_in_name(path: str, rank: int | None) -> None:
    assert rank_in_name(path) == rank


def test_coordinates_in_name() -> None:
    assert coordinates_in_name("1755-TP-1-DP-0-PP-1-EP-0.trace.json.gz") == {"TP": 1, "DP": 0, "PP": 1, "EP": 0}
    assert coordinates_in_name("dp0_pp1_tp2_dcp0_ep0.json") == {"DP": 0, "PP": 1, "TP": 2, "DCP": 0, "EP": 0}
    assert coordinates_in_name("pp_rank_1_tp_rank_0.json") == {"PP": 1, "TP": 0}
    assert coordinates_in_name("http-server.json") is None


def test_content_beats_name_and_the_conflict_is_reported() -> None:
    parts = [part("rank0.json", 1, 2), part("rank1.json", 0, 2)]
    decision = resolve(parts)
    assert [(p.rank, p.used) for p in parts] == [(1, True), (0, True)]
    assert [f["code"] for f in decision.findings].count("rank-name-conflict") == 2


def test_on_demand_content_is_distrusted() -> None:
    assert outcome([part("rank3.json", 0, 4, on_demand=True)]) == {"rank3.json": (3, True)}
    lonely = part("trace.json", 2, 4, on_demand=True)
    decision = resolve([lonely])
    assert lonely.rank == 2
    assert "rank-doubtful" in {f["code"] for f in decision.findings}


def test_user_input_wins() -> None:
    ranks = user_ranks(r"gpu(?P<rank>\d+)", None)
    given = part("gpu7/rank1.json", 2, 8)
    assert outcome([given], user=ranks) == {"gpu7/rank1.json": (7, True)}
    assert given.identity == "map"
    assert "content says rank 2" in (given.reason or "")


def test_another_world_size_is_an_impostor() -> None:
    parts = [part("rank0.json", 0, 4), part("rank1.json", 1, 4), part("rank2.json", 2, 8)]
    assert outcome(parts)["rank2.json"] == (2, False)
    assert "world size" in (parts[2].reason or "")


def test_a_rank_beyond_the_world_is_an_impostor() -> None:
    assert outcome([part("rank0.json", 0, 2), part("rank5.json", 5, 2)])["rank5.json"] == (5, False)


def test_another_time_is_an_impostor() -> None:
    parts = [part("rank0.json", 0, 4), part("rank1.json", 1, 4, 2), part("rank2.json", 2, 4, 4000)]
    assert outcome(parts) == {"rank0.json": (0, True), "rank1.json": (1, True), "rank2.json": (2, False)}


def test_of_two_captures_the_fuller_counts_then_the_later() -> None:
    early = [part(f"a/rank{r}.json", r, 4, 0) for r in range(4)]
    late = [part(f"b/rank{r}.json", r, 4, 600) for r in range(4)]
    used = {p for p, (_, u) in outcome(early + late).items() if u}
    assert used == {f"b/rank{r}.json" for r in range(4)}
    fewer = [part(f"b/rank{r}.json", r, 4, 600) for r in range(3)]
    early = [part(f"a/rank{r}.json", r, 4, 0) for r in range(4)]
    assert {p for p, (_, u) in outcome(early + fewer).items() if u} == {f"a/rank{r}.json" for r in range(4)}


def test_a_copy_and_a_retry_of_a_rank() -> None:
    first, copy = part("a.json", 0, 2), part("b.json", 0, 2)
    copy.digest = first.digest
    assert outcome([copy, first]) == {"a.json": (0, True), "b.json": (0, False)}
    old, new = part("x.json", 0, 2, 0, attempt=1), part("a.json", 0, 2, 0, attempt=2)
    assert outcome([old, new]) == {"x.json": (0, False), "a.json": (0, True)}


def test_missing_ranks_are_known_and_nothing_is_renumbered() -> None:
    parts = [part(f"rank{r}.json", r, 1024) for r in (0, 389, 1023)]
    decision = resolve(parts)
    assert [p.rank for p in parts] == [0, 389, 1023]
    missing = next(f for f in decision.findings if f["code"] == "missing-ranks")
    assert "missing: 1-388,390-1022" in missing["message"]


def test_removing_a_file_never_changes_another_rank() -> None:
    names = [("rank2.json", 0), ("rank0.json", 1), ("rank1.json", 2), ("x.json", None)]
    whole = outcome([part(n, r, 4) for n, r in names])
    for gone in range(len(names)):
        rest = outcome([part(n, r, 4) for i, (n, r) in enumerate(names) if i != gone])
        assert all(whole[n][0] == r[0] for n, r in rest.items())


def test_the_order_of_files_does_not_matter() -> None:
    def make() -> list[Part]:
        return [part("a.json", 0, 2), part("b.json", 0, 2, 1), part("rank1.json", None, 2), part("c.json", 1, 3)]

    results = [outcome(list(order)) for order in itertools.permutations(make())]
    assert all(r == results[0] for r in results)


def test_coordinates_give_ranks_only_when_one_to_one() -> None:
    names = [f"9-TP-{t}-PP-{p}.trace.json" for p in range(2) for t in range(2)]
    assert [outcome([part(n) for n in names])[n][0] for n in names] == [0, 1, 2, 3]
    clash = ["9-TP-0-DP-0.trace.json", "9-TP-0-DP-1.trace.json"]
    assert {r for r, _ in outcome([part(n) for n in clash]).values()} == {None}


def test_coordinates_of_an_incomplete_mesh_are_not_guessed() -> None:
    names = ["9-TP-0-PP-0.json", "9-TP-1-PP-0.json", "9-TP-0-PP-1.json"]
    assert [outcome([part(n) for n in names])[n][0] for n in names] == [0, 1, None]
    names = ["9-TP-0-PP-0.json", "9-TP-0-PP-1.json"]
    assert [outcome([part(n) for n in names])[n][0] for n in names] == [0, None]
    assert [outcome([part(n, world=2) for n in names])[n][0] for n in names] == [0, 1]
    assert [outcome([part(n, world=8) for n in names])[n][0] for n in names] == [0, None]


def test_on_demand_captures_that_claim_one_rank_are_unknown_not_copies() -> None:
    parts = [part("a.json", 0, 2, on_demand=True), part("b.json", 0, 2, on_demand=True)]
    decision = resolve(parts)
    assert [(p.rank, p.used, p.identity) for p in parts] == [(None, True, "none")] * 2
    assert {f["code"] for f in decision.findings} >= {"rank-doubtful", "rank-unknown"}


def test_windows_of_one_rank_the_one_shared_with_others_counts() -> None:
    parts = [part("a.json", 0, 2, 0), part("b.json", 0, 2, 9), part("c.json", 1, 2, 0)]
    assert outcome(parts) == {"a.json": (0, True), "b.json": (0, False), "c.json": (1, True)}
    assert "another window of the same rank" in (parts[1].reason or "")


def test_a_copy_of_a_trace_without_rank_counts_once() -> None:
    first, copy = part("a.json"), part("b.json")
    copy.digest = first.digest
    assert outcome([copy, first]) == {"a.json": (None, True), "b.json": (None, False)}


def test_a_trace_slightly_apart_is_kept_and_reported() -> None:
    parts = [part("a.json", 0, 3), part("b.json", 1, 3), part("c.json", 2, 3, 5)]
    decision = resolve(parts)
    assert all(p.used for p in parts)
    assert [f["rank"] for f in decision.findings if f["code"] == "time-apart"] == [2]


def test_traces_without_rank_count_one_each_when_captures_are_compared() -> None:
    parts = [part("a.json"), part("b.json"), part("c.json", start=4000)]
    assert outcome(parts) == {"a.json": (None, True), "b.json": (None, True), "c.json": (None, False)}


def test_gaps_are_known_missing_without_a_world_size() -> None:
    decision = resolve([part("rank0.json"), part("rank3.json")])
    assert "missing at least: 1-2" in next(f["message"] for f in decision.findings if f["code"] == "missing-ranks")


def test_unknown_ranks_do_not_collide() -> None:
    parts = [part("a.json"), part("b.json")]
    decision = resolve(parts)
    assert all(p.used and p.rank is None for p in parts)
    assert "rank-unknown" in {f["code"] for f in decision.findings}


def test_compress() -> None:
    assert compress([0, 1, 2, 3, 7, 9, 10]) == "0-3,7,9-10"
    assert compress([]) == ""


def test_rank_map(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "ranks.txt"
    file.write_text("# name rank\nhost-a_*.json 3\nb.json\t5\n")
    ranks = user_ranks(None, file)
    assert ranks is not None
    assert ranks("/x/host-a_17.json") == 3
    assert ranks("/x/b.json") == 5
    assert ranks("/x/c.json") is None
    file.write_text("b.json five\n")
    with pytest.raises(UsageError, match="line 1"):
        user_ranks(None, file)


@pytest.mark.parametrize("regex", ["(", "rank"])
def test_bad_rank_regex(regex: str) -> None:
    with pytest.raises(UsageError, match="--rank-regex"):
        user_ranks(regex, None)
