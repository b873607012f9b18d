"""Every order, action by action, against torch's own and DeepSeek's own."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest
from record_torch_orders import torch_order

from tracekit.theory.schedules import build

HERE = Path(__file__).parent
Case: TypeAlias = tuple[str, int, int, int]


def recorded(file: str) -> dict[Case, list[list[str]]]:
    """(name, ranks, micro-batches, stages a rank) → each rank's order, from a file that a script beside it wrote."""
    found: dict[Case, list[list[str]]] = {}
    for line in (HERE / file).read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        head, order = line.split(": ")
        name, p, m, v, rank = head.split()
        orders = found.setdefault((name, int(p), int(m), int(v)), [])
        assert len(orders) == int(rank)
        orders.append(order.split())
    return found


def orders(name: str, p: int, m: int, v: int) -> list[list[str]]:
    return [[str(step) for step in order] for order in build(name, p, m, v).orders]


TORCH, DEEPSEEK = recorded("torch_orders.txt"), recorded("dualpipe_orders.txt")


@pytest.mark.parametrize("case", TORCH, ids=lambda c: "-".join(map(str, c)))
def test_order_is_that_of_torch(case: Case) -> None:
    p, v = case[1], case[3]
    assert len(TORCH[case]) == p
    assert orders(case[0], p, case[2], v if v > 1 else None) == TORCH[case]


@pytest.mark.parametrize("case", DEEPSEEK, ids=lambda c: "-".join(map(str, c)))
def test_order_is_that_of_deepseek(case: Case) -> None:
    assert len(DEEPSEEK[case]) == case[1]
    assert orders(*case) == DEEPSEEK[case]


def test_records_cover_every_schedule_torch_and_deepseek_have() -> None:
    assert {c[0] for c in TORCH} == {
        "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV",
    }  # fmt: skip
    assert {c[0] for c in DEEPSEEK} == {"DualPipe", "DualPipeV"}


def test_zb_h1_is_the_zero_bubble_schedule_of_torch_with_one_stage_a_rank() -> None:
    torchs = [c for c in TORCH if c[0] == "InterleavedZeroBubble" and c[3] == 1]
    assert torchs
    for _, p, m, _ in torchs:
        assert orders("ZB-H1", p, m, 1) == TORCH["InterleavedZeroBubble", p, m, 1]


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted({c[0] for c in TORCH}))
def test_orders_are_those_of_the_installed_torch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.__version__.startswith("2.13."):
        pytest.skip(f"the private names of orders were checked with torch 2.13, not {torch.__version__}")
    single, v_shaped = name in ("GPipe", "1F1B"), name in ("ZBVZeroBubble", "DualPipeV")
    compared = 0
    for p in range(1, 7):
        for m in range(1, 20):
            for v in (1,) if single else (2,) if v_shaped else (1, 2, 3):
                if ("Interleaved" in name and m % max(1, m // p)) or (name == "DualPipeV" and m < 2 * p):
                    continue
                assert orders(name, p, m, v) == torch_order(name, p, m, v), (p, m, v)
                compared += 1
    assert compared > 70
