"""The simulator against `tracekit.theory`: starts of actions, FLOPs of kernels, bytes and calls of the plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from simulate_cases import CASES, DENSE, MOE, job

from tracekit import simulate, theory
from tracekit.simulate.costs import Costs
from tracekit.simulate.device import GAP_NS
from tracekit.theory.planning import stages
from tracekit.theory.schedules import replay

if TYPE_CHECKING:
    from tracekit.simulate import Simulation

PIPELINES = [
    n for n, (layout, _, _, o) in CASES.items() if "pp=" in layout and not {"batched", "slow", "jitter_ratio"} & set(o)
]


def simulated(name: str) -> Simulation:
    layout, model, training, options = CASES[name]
    return simulate.simulate(job(layout, model, **training), simulate.Options(**{"steps": 1, **options}))


@pytest.mark.parametrize("name", PIPELINES)
def test_actions_start_when_the_schedule_says(name: str) -> None:
    """The oracle gets the order, each action's duration and the latency; it must find the same starts."""
    simulation = simulated(name)
    latency = {w.end - max(m.start for m in w.meetings[0].members) for g in simulation.gpus for w in g.device
               if w.labels and w.labels[0].op == "recv"}  # fmt: skip
    assert len(latency) == 1
    for ranks in simulation.job.layout.groups("pp"):
        timeline = simulation.timeline(0, ranks)
        first = [row[0] for row in timeline.start_ns]
        durations = [
            [b - a for a, b in zip(s, e, strict=True)] for s, e in zip(timeline.start_ns, timeline.end_ns, strict=True)
        ]
        without_inputs = [r for r in range(len(ranks)) if not _receives(simulation, r)]
        assert 0 in without_inputs
        expected = replay(
            simulation.schedule, durations, GAP_NS + min(latency),
            [first[r] if r in without_inputs else first[0] for r in range(len(ranks))],
        )  # fmt: skip
        assert timeline.start_ns == expected.start_ns
        assert timeline.end_ns == expected.end_ns


def _receives(simulation: Simulation, rank: int) -> bool:
    return bool(simulation.schedule.wiring.needs[rank][0])


@pytest.mark.parametrize(("model", "moe"), [(DENSE, False), (MOE, True)])
def test_products_are_the_flops_of_a_layer(model: dict[str, object], moe: bool) -> None:
    one = job("tp=2", model, sequence_parallel=True)
    costs = Costs(one)
    total = costs.qkv_flops + costs.out_flops + costs.attention_flops + sum(
        sum(costs.mlp_flops(w)) for w in costs.widths(moe=moe)
    )  # fmt: skip
    assert total == pytest.approx(stages.layer_flops(one, moe=moe), rel=1e-12)
    assert costs.head_flops == 2.0 * 4096 * 4096 * 32768 / 2


def found(simulation: Simulation, rank: int) -> tuple[Counter[tuple[str, str, str]], Counter[tuple[str, str, str]]]:
    """(payload bytes, calls) by (strategy, purpose, op) of one rank and step."""
    size: Counter[tuple[str, str, str]] = Counter()
    calls: Counter[tuple[str, str, str]] = Counter()
    for work in simulation.gpus[rank].device:
        for label in work.labels:
            size[label.strategy, label.purpose, label.op] += label.payload_bytes
            calls[label.strategy, label.purpose, label.op] += 1
    return size, calls


VOLUMES = {
    "tp pp dp 1F1B": ("tp", "pp", "dp"),
    "sp pp zero1 interleaved": ("tp", "sp", "pp", "zero1"),
    "GPipe, recompute": ("tp", "pp"),
    "LoopedBFS": ("pp", "dp"),
    "ZB-H2": ("pp", "zero1"),
    "ZBV torch": ("pp", "tp"),
    "tp pp dp 1F1B batched, slow rank": ("tp", "pp", "dp", "embedding"),
    "ulysses": ("cp",),
    "ddp torch": ("dp",),
    "64 ranks": ("tp", "sp", "pp", "zero1"),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_bytes_and_calls_are_those_of_the_plan(name: str) -> None:
    simulation = simulated(name)
    plan = theory.plan(simulation.job)
    assert not [k for k in plan.reasons if k.startswith("collectives.")]
    for place, rank in enumerate(next(iter(simulation.job.layout.groups("pp")))):
        size: Counter[tuple[str, str, str]] = Counter()
        calls: Counter[tuple[str, str, str]] = Counter()
        for row in plan.rows:
            if row.strategy in VOLUMES[name]:
                key = row.strategy, row.purpose, row.op
                assert row.step_payload_bytes is not None
                size[key] += row.step_payload_bytes[place]
                calls[key] += row.per_step[place] if row.per_step is not None else 0
        mine, made = found(simulation, rank)
        mine.pop(("sp", "grad_reduce", "all_reduce"), None)  # gradients of norms: the plan leaves them out
        assert {k: v for k, v in mine.items() if k[0] in VOLUMES[name]} == +size, rank
        assert {k: made[k] for k in +calls} == +calls, rank


def test_fsdp_bytes_are_those_of_the_plan_and_the_root() -> None:
    """The plan leaves the root module out: embedding, last norm and head, gathered and scattered once."""
    simulation = simulated("fsdp")
    root = 2 * (2 * 32768 * 4096 + 4096)
    rows = {(r.op, r.phase): r.step_payload_bytes for r in theory.plan(simulation.job).rows}
    gathers = rows["all_gather", "forward"], rows["all_gather", "backward"]
    assert all(gathers)
    mine, _ = found(simulation, 3)
    m = 2
    assert mine["zero3", "param_gather", "all_gather"] == sum(g[0] for g in gathers if g) + m * root
    scattered = rows["reduce_scatter", "backward"]
    assert scattered
    assert mine["zero3", "grad_reduce", "reduce_scatter"] == scattered[0] + m * root


def test_tokens_of_experts_are_those_of_the_plan() -> None:
    simulation = simulated("ep torch")
    rows = [r for r in theory.plan(simulation.job).rows if r.strategy == "ep"]
    assert len(rows) == 4
    sent = [x.payload_bytes for w in simulation.gpus[0].device for x in w.labels if x.axis == "ep"]
    counts = 8 * 8  # one int64 an expert
    assert Counter(sent) == Counter([counts] * 2 + [r.payload_bytes for r in rows for _ in range(2)])
    splits = {w.args.split('"In split size": "')[1].split('"')[0] for w in simulation.gpus[0].device if w.labels and w.labels[0].axis == "ep"}  # fmt: skip
    assert "[1792, 2304, 1792, 2304]" in splits
