"""Write dualpipe_orders.txt: the orders of DeepSeek's DualPipe and DualPipeV, one line a rank, by running their steps.

    python tests/theory/schedules/record_dualpipe_orders.py CLONE_OF_DEEPSEEK-AI_DUALPIPE

Needs torch, no process group and no GPU: whatever computes or communicates is replaced by a note of what would run.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from itertools import count
from typing import Any

CASES = {
    "DualPipe": [(2, 4), (4, 8), (4, 10), (6, 16), (8, 20)],
    "DualPipeV": [(1, 2), (2, 5), (4, 8), (4, 10), (5, 12)],
}
"""(ranks, micro-batches) by name."""


def stages(name: str, p: int, m: int, rank: int) -> list[tuple[int, int]]:
    """(stage, its first micro-batch) of phase 0 and phase 1 as the rank sees them."""
    if name == "DualPipeV":
        return [(rank, 0), (2 * p - 1 - rank, 0)]
    there, back = (rank, 0), (2 * p - 1 - rank, m // 2)  # DualPipe's second pipeline: stages p…2p-1 on ranks p-1…0
    return [there, back] if rank < p // 2 else [back, there]


def order(module: Any, name: str, p: int, m: int, rank: int) -> list[str]:
    """The order of one rank: `step` of the class, with its four kinds of work noted instead of done."""
    import torch

    done: list[str] = []
    queue: deque[str] = deque()
    held = stages(name, p, m, rank)
    ahead = [count(first) for _, first in held]
    behind = [count(first) for _, first in held]

    class Noted(getattr(module, name)):  # type: ignore[misc]
        def _forward_chunk(self, phase: int, **options: Any) -> None:
            done.append(f"{held[phase][0]}F{next(ahead[phase])}")

        def _backward_chunk(self, phase: int, enable_zb: bool = False, **options: Any) -> None:
            stage, k = held[phase][0], next(behind[phase])
            done.append(f"{stage}{'I' if enable_zb else 'B'}{k}")
            if enable_zb:
                queue.append(f"{stage}W{k}")

        def _forward_backward_chunk(self, phase0: int, phase1: int, **options: Any) -> None:
            first = f"{held[phase0][0]}F{next(ahead[phase0])}"
            done.append(f"({first};{held[phase1][0]}B{next(behind[phase1])})OVERLAP_F_B")

        def _weight_chunk(self) -> None:
            done.append(queue.popleft())

        def _nothing(self, *given: Any) -> None:
            pass

        _recv_forward = _send_forward = _recv_backward = _send_backward = _commit_and_wait_comm = _nothing

    pipe = Noted.__new__(Noted)
    torch.nn.Module.__init__(pipe)
    pipe.rank, pipe.num_ranks, pipe.batch_dim = rank, p, 0
    pipe.is_first_rank = pipe.is_last_rank = False  # they only hold inputs and losses
    pipe.is_in_second_half, pipe.is_middle_rank = rank >= p // 2, rank in (p // 2 - 1, p // 2)
    if name == "DualPipeV":
        pipe.is_last_rank = rank == p - 1  # decides the order at the turn
    pipe.step(num_chunks=m)
    return done


def main(clone: str) -> None:
    """Write the file's lines to standard output."""
    sys.path.insert(0, clone)
    import dualpipe
    from dualpipe import comm

    comm.TENSOR_SHAPES, comm.TENSOR_DTYPE = [], object()
    commit = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    print(f"# deepseek-ai/DualPipe {commit.stdout.strip()}, written by record_dualpipe_orders.py")
    for name, cases in CASES.items():
        for p, m in cases:
            for rank in range(p):
                print(f"{name} {p} {m} 2 {rank}: {' '.join(order(dualpipe, name, p, m, rank))}")


if __name__ == "__main__":
    main(sys.argv[1])
