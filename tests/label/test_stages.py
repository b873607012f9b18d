"""Messages of pipeline stages on a group that carries other calls, too, and messages that only look like them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.label.behaviour import group_traffic

WORLD = (0, 1, 2, 3)


def traffic(rank: int, batches: list[list[tuple[str, int]]], members: tuple[int, ...] = WORLD) -> frozenset[str]:
    """Tags of a group with an all-reduce and these batches of (send or recv, peer)."""
    calls: list[Any] = [_call("all_reduce", members)]
    for batch in batches:
        first = len(calls)
        for n, (op, peer) in enumerate(batch):
            ends = {"dst_rank": peer} if op == "send" else {"src_rank": peer}
            calls.append(_call(op, members, coalesced_into=first if n else None, **ends))
    return next(iter(group_traffic(calls, rank).values()))[1]


def _call(op: str, members: tuple[int, ...], **more: Any) -> SimpleNamespace:
    plain = {"dst_rank": None, "src_rank": None, "coalesced_into": None, "group_name": "0", "group_size": len(members)}
    return SimpleNamespace(op=op, members=members, **{**plain, **more})


def one_f_one_b(place: int, ranks: tuple[int, ...], m: int, *, batched: bool) -> list[list[tuple[str, int]]]:
    """Messages of torch's Schedule1F1B: sends of a forward travel with the receive of the backward that follows."""
    last = len(ranks) - 1
    before, after = ranks[place - 1] if place else None, ranks[place + 1] if place < last else None
    warm = min(m, last - place)
    out: list[list[tuple[str, int]]] = []
    for _ in range(warm):
        out += [[("recv", before)]] if before is not None else []
        out += [[("send", after)]] if after is not None else []
    for i in range(warm, m):
        out += [[("recv", before)]] if before is not None and i == warm else []
        out += [[("send", after), ("recv", after)]] if after is not None else []
        more = i + 1 < m
        if before is not None:
            out += [[("send", before), ("recv", before)]] if more else [[("send", before)]]
    for _ in range(warm):
        out += [[("recv", after)]] if after is not None else []
        out += [[("send", before)]] if before is not None else []
    return out if batched else [[one] for batch in out for one in batch]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("place", range(4))
def test_stages_of_a_chain(place: int, batched: bool) -> None:
    assert "stages" in traffic(WORLD[place], one_f_one_b(place, WORLD, 6, batched=batched))


@pytest.mark.parametrize(
    ("place", "batched", "told"), [(0, True, True), (1, True, True), (0, False, True), (1, False, False)]
)
def test_two_stages(place: int, batched: bool, told: bool) -> None:
    """Without batches the last of two stages answers each message with one, as a ring of two does: not told."""
    assert ("stages" in traffic(place, one_f_one_b(place, (0, 1), 6, batched=batched), (0, 1))) == told


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("batched", [True, False])
def test_a_ring_is_no_pipeline(n: int, batched: bool) -> None:
    members = tuple(range(n))
    for rank in members:
        step = [("send", (rank + 1) % n), ("recv", (rank - 1) % n)]
        batches = [step] * 12 if batched else [[one] for one in step] * 12
        assert "stages" not in traffic(rank, batches, members)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_an_exchange_with_everyone_is_no_pipeline(n: int) -> None:
    members = tuple(range(n))
    for rank in members:
        batch = [(op, peer) for peer in members if peer != rank for op in ("send", "recv")]
        assert "stages" not in traffic(rank, [batch] * 8, members)


def test_messages_one_way_are_no_pipeline() -> None:
    """Keys and values from prefill to decode; weights to their new place."""
    assert "stages" not in traffic(1, [[("send", 2)]] * 32)
    assert "stages" not in traffic(1, [[("recv", 2)]] * 32)
    assert "stages" not in traffic(1, [[("send", 2)], [("recv", 0)]] * 8)


def test_peers_that_are_no_neighbours_are_no_pipeline_of_this_group() -> None:
    assert "stages" not in traffic(0, one_f_one_b(0, (0, 2), 6, batched=True))


def test_one_micro_batch_tells_nothing() -> None:
    assert "stages" not in traffic(0, one_f_one_b(0, WORLD, 1, batched=True))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_balanced_is_as_much_to_each_neighbour_as_from_it(n: int) -> None:
    """A looped pipeline sends around the end of the group, too; a ring sends one way."""
    members = tuple(range(n))
    both = [("send", 1), ("recv", 1), ("send", n - 1), ("recv", n - 1)]
    assert "balanced" in traffic(0, [[one] for one in both * 4], members)
    ring = [("send", 1), ("recv", n - 1)] * 8
    assert ("balanced" in traffic(0, [[one] for one in ring], members)) == (n == 2)
    assert "balanced" not in traffic(0, [[("send", 2)], [("recv", 2)]] * 8)
