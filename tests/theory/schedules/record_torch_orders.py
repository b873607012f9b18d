"""Write torch_orders.txt: the orders torch.distributed.pipelining gives each rank, one line a rank.

    python tests/theory/schedules/record_torch_orders.py > tests/theory/schedules/torch_orders.txt

Needs torch 2.13 (the orders are private there; the names below were checked with that version), no process group.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPED = [(2, 2, 1), (2, 6, 2), (3, 3, 3), (4, 4, 2), (4, 8, 1), (4, 10, 2), (4, 3, 2), (5, 10, 3), (8, 16, 2)]
V_SHAPED = [(1, 2, 2), (2, 4, 2), (3, 7, 2), (4, 8, 2), (5, 13, 2), (8, 20, 2)]
CASES = {
    "GPipe": [(1, 3, 1), (2, 5, 1), (4, 8, 1)],
    "1F1B": [(1, 3, 1), (2, 2, 1), (4, 2, 1), (3, 7, 1), (4, 8, 1), (8, 16, 1)],
    "Interleaved1F1B": LOOPED,
    "LoopedBFS": LOOPED,
    "InterleavedZeroBubble": LOOPED,
    "ZBVZeroBubble": [(4, 3, 2), (4, 1, 2), *V_SHAPED],
    "DualPipeV": V_SHAPED,
}
"""(ranks, micro-batches, stages a rank) by name."""


class Recorder:
    """Stands in for a stage without neighbours: notes which forwards and backwards a schedule runs on it."""

    def __init__(self, stage: int) -> None:
        self.stage_index = stage
        self.order: list[str] = []

    def forward_one_chunk(self, k: int, *args: Any, **options: Any) -> None:
        self.order.append(f"{self.stage_index}F{k}")

    def backward_one_chunk(self, k: int, **options: Any) -> None:
        self.order.append(f"{self.stage_index}B{k}")

    def perform_reduce_grad(self, scale: int) -> None:
        pass

    def no_transfers(self, k: int) -> list[Any]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = no_transfers


def executed(cls: Any, p: int, m: int) -> list[list[str]]:
    """The orders of a schedule of one stage a rank, by running its loop on a Recorder.

    1F1B also has a description of its order, which numbers the forwards of the last rank from 1 instead of 0 (2.13).
    """
    orders = []
    for rank in range(p):
        schedule: Any = cls.__new__(cls)
        schedule._n_microbatches, schedule._num_stages, schedule._stage = m, p, Recorder(rank)
        schedule._has_backward, schedule.scale_grads = True, False
        schedule._check_inputs = lambda *given: ([()] * m, [{}] * m)
        for unused in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
            setattr(schedule, unused, lambda *given: None)
        schedule._step_microbatches()
        orders.append(schedule._stage.order)
    return orders


def torch_order(name: str, p: int, m: int, v: int) -> list[list[str]]:
    """Each rank's order as torch prints it, without its idle slots."""
    from torch.distributed.pipelining import schedules

    cls = schedules.get_schedule_class(name)
    if issubclass(cls, schedules.PipelineScheduleSingle):
        return executed(cls, p, m)
    schedule: Any = cls.__new__(cls)
    schedule._n_microbatches, schedule.num_stages = m, p * v
    schedule.pp_group_size, schedule.n_local_stages, schedule._stages = p, v, [None] * v
    schedule.number_of_rounds = max(1, m // p)
    schedule.microbatches_per_round = m // schedule.number_of_rounds
    orders = [schedule._calculate_single_rank_operations(rank) for rank in range(p)]
    return [[str(action) for action in order if action is not None] for order in orders]


def lines() -> Iterator[str]:
    """The file's lines: `name p m v rank: order`."""
    import torch

    yield f"# torch {torch.__version__}, written by record_torch_orders.py"
    for name, cases in CASES.items():
        for p, m, v in cases:
            for rank, order in enumerate(torch_order(name, p, m, v)):
                yield f"{name} {p} {m} {v} {rank}: {' '.join(order)}"


if __name__ == "__main__":
    sys.stdout.writelines(line + "\n" for line in lines())
