"""Record the CPU samples with torch.profiler on gloo: `python record_gloo.py` (torch 2.13, about a minute).

gloo-tp2-pp2-dp2: 8 processes, mesh (pp, dp, tp) = (2, 2, 2); tensor parallelism by hand (Megatron's two
functions), pipeline by
`Schedule1F1B` with 4 micro-batches, data parallelism by DDP; 2 recorded steps.
gloo-fsdp2: 2 processes, two layers with `fully_shard`; 3 recorded steps.

Beside the traces, `truth.json` holds what the script itself knows: degrees, groups, and the number of
communication calls of each kind a step and rank must issue.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

HERE = Path(__file__).resolve().parent
HIDDEN, TOKENS, MICRO_BATCHES = 64, 32, 4


class CopyToTensorParallel(torch.autograd.Function):
    """Identity forward; all-reduce of the gradient backward."""

    @staticmethod
    def forward(ctx, x, group):  # type: ignore[no-untyped-def]
        """Keep the group for backward."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        """Sum the partial gradients of the ranks."""
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromTensorParallel(torch.autograd.Function):
    """All-reduce forward; identity backward."""

    @staticmethod
    def forward(ctx, x, group):  # type: ignore[no-untyped-def]
        """Sum the partial outputs of the ranks."""
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        """Every rank holds the whole gradient already."""
        return grad, None


class Block(nn.Module):
    """Two linear layers with an activation; with a group, each rank holds its slice of both."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.group = group
        width = 4 * HIDDEN // (group.size() if group else 1)
        self.up = nn.Linear(HIDDEN, width, bias=False)
        self.down = nn.Linear(width, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(tokens, hidden) -> (tokens, hidden)."""
        if self.group is None:
            return x + self.down(torch.relu(self.up(x)))
        inner = CopyToTensorParallel.apply(x, self.group)
        return x + ReduceFromTensorParallel.apply(self.down(torch.relu(self.up(inner))), self.group)


def _setup(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)


def _record(step, steps: int, path: str) -> None:  # type: ignore[no-untyped-def]
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=plan,
        record_shapes=True,
        on_trace_ready=lambda prof: prof.export_chrome_trace(path),
    ) as prof:
        for _ in range(steps + 1):
            step()
            dist.barrier()
            prof.step()


def three_d(rank: int, world: int, store: str, out: str) -> None:
    """One process of the TP x PP x DP job."""
    _setup(rank, world, store)
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    stage_index = mesh.get_local_rank("pp")
    block = Block(mesh.get_group("tp"))
    model = DistributedDataParallel(block, process_group=mesh.get_group("dp"), broadcast_buffers=False)
    stage = PipelineStage(model, stage_index, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule_ = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=lambda out, target: ((out - target) ** 2).mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(TOKENS * MICRO_BATCHES, HIDDEN)

    def step() -> None:
        if stage_index == 0:
            schedule_.step(data)
        else:
            schedule_.step(target=data)
        optimizer.step()
        optimizer.zero_grad()

    _record(step, 2, f"{out}/rank{rank}.json")
    dist.destroy_process_group()


def fsdp(rank: int, world: int, store: str, out: str) -> None:
    """One process of the FSDP2 job."""
    _setup(rank, world, store)
    layers = nn.Sequential(Block(), Block())
    for layer in layers:
        fully_shard(layer)
    fully_shard(layers)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    data = torch.randn(TOKENS, HIDDEN)

    def step() -> None:
        layers(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    _record(step, 3, f"{out}/rank{rank}.json")
    dist.destroy_process_group()


def _write(job, world: int, name: str, truth: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(job, args=(world, str(Path(tmp) / "store"), tmp), nprocs=world)
        for rank in range(world):
            trace = json.loads(Path(tmp, f"rank{rank}.json").read_text("utf-8"))
            trace["traceName"] = f"/job/traces/rank{rank}.json"
            trace["host_name"] = "node0"
            text = json.dumps(trace, separators=(", ", ": "))
            with gzip.GzipFile(target / f"rank{rank}.json.gz", "wb", mtime=0) as sink:
                sink.write(text.encode())
    (target / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", "utf-8")


THREE_D = {
    "world_size": 8, "steps": 2, "degrees": {"pp": 2, "dp": 2, "tp": 2}, "micro_batches": MICRO_BATCHES,
    "groups": {
        "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
        "dp": [[0, 2], [1, 3], [4, 6], [5, 7]],
        "pp": [[0, 4], [1, 5], [2, 6], [3, 7]],
    },
    "calls_per_step": {
        "comment": "a rank sends and receives one tensor a micro-batch over its one stage boundary, each way; "
        "tensor parallelism reduces once forward and once backward (first stage: its input needs no gradient, "
        "so only forward) a micro-batch; "
        "the two weights fit one bucket",
        "pp": {"send": MICRO_BATCHES, "recv": MICRO_BATCHES},
        "tp": {"all_reduce": {"first stage": MICRO_BATCHES, "last stage": 2 * MICRO_BATCHES}},
        "dp": {"all_reduce": 1},
    },
}  # fmt: skip
FSDP = {
    "world_size": 2, "steps": 3, "degrees": {"dp": 2}, "groups": {"dp": [[0, 1]]},
    "calls_per_step": {
        "comment": "each layer gathers its parameters forward and backward and scatters its gradients once; "
        "the root module owns no parameter of its own",
        "zero3": {"all_gather": 4, "reduce_scatter": 2},
    },
}  # fmt: skip

if __name__ == "__main__":
    if not torch.__version__.startswith("2.13"):
        sys.exit("the committed samples were recorded with torch 2.13; another release writes other files")
    _write(three_d, 8, "gloo-tp2-pp2-dp2", THREE_D)
    _write(fsdp, 2, "gloo-fsdp2", FSDP)
