"""Run a job: all ranks issue a step, the device times follow, and so on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.simulate.calls import Wire
from tracekit.simulate.clock import Clock, clock_of
from tracekit.simulate.costs import Costs
from tracekit.simulate.data import Replicated
from tracekit.simulate.device import GAP_NS, Gpu
from tracekit.simulate.finish import finish
from tracekit.simulate.groups import Groups
from tracekit.simulate.job import checked, schedule_of, settled
from tracekit.simulate.options import Options
from tracekit.simulate.pipeline import Pipeline, Ran, Runner
from tracekit.simulate.rank import Rank
from tracekit.simulate.resolve import resolve
from tracekit.simulate.sharded import FullySharded
from tracekit.simulate.stages import Stages
from tracekit.theory.schedules import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.theory.planning import Job
    from tracekit.theory.schedules import Schedule

    Progress = Callable[[int, int, str], None]

START_NS = 5_147_358_108_740_325
GRADIENT_DUTIES = ("grad_reduce",)


@dataclass
class Simulation:
    """A job that has run. `spans[step][rank]`: (start, end) ns of each entry of the rank's order in the schedule."""

    job: Job
    options: Options
    schedule: Schedule
    groups: Groups
    gpus: list[Gpu]
    streams: list[int] = field(default_factory=list)
    spans: dict[int, dict[int, list[tuple[int, int]]]] = field(default_factory=dict)

    @property
    def steps(self) -> range:
        """Numbers of the steps."""
        return range(self.options.first_step, self.options.first_step + self.options.steps)

    def clock(self, rank: int) -> Clock:
        """What the clock of a rank's node shows."""
        hw = self.job.hardware
        node = rank // int(hw.need("gpus_per_node")) if hw else rank
        return clock_of(self.options, node, START_NS)

    def timeline(self, step: int, ranks: tuple[int, ...]) -> Timeline:
        """The schedule as one pipeline (global ranks by stage) ran it in a step."""
        rows = [self.spans[step][rank] for rank in ranks]
        return Timeline(
            self.schedule,
            tuple(tuple(a for a, _ in row) for row in rows),
            tuple(tuple(b for _, b in row) for row in rows),
        )


def simulate(job: Job, options: Options | None = None, progress: Progress | None = None) -> Simulation:
    """Simulate a job; progress is called with (steps done, steps, what).

    Raises UsageError or NoNumber where an input is missing, wrong or not modelled.
    """
    job = settled(job)
    options = checked(job, options or Options())
    framework = options.framework or ""
    schedule = schedule_of(job)
    fully = job.training.choice("data_parallel") == "fsdp"
    groups = Groups(job.layout, framework, fully_sharded=fully, experts=job.model.experts is not None)
    costs = Costs(job)
    wire = Wire(costs, groups, options.slow_link, round(options.p2p_latency_us * 1000))
    pipeline = Pipeline(schedule)
    place = {rank: i for ranks in job.layout.groups("pp") for i, rank in enumerate(ranks)}
    held = [Stages(job, schedule, i) for i in range(job.layout.pp)]
    runners = []
    for rank in range(job.layout.world_size):
        gpu = _gpu(rank, options, place[rank])
        r = Rank(gpu, job, costs, wire, framework)
        r.gradients = FullySharded(r, held[place[rank]].outside()) if fully else Replicated(r)
        runner = Runner(r, pipeline, held[place[rank]], place[rank], overlapped=not options.batched)
        runner.long = options.long_micro_batches
        runners.append(runner)
    out = Simulation(job, options, schedule, groups, [x.r.gpu for x in runners])
    for done, step in enumerate(out.steps, 1):
        out.spans[step] = _step(step, runners)
        wire.forget()
        if progress is not None:
            progress(done, len(out.steps), f"step {step}")
    out.streams = wire.streams
    return out


def _gpu(rank: int, options: Options, place: int) -> Gpu:
    """A rank's device with the faults it has for itself."""
    slow = options.slow.get(rank, 1.0) * options.slow_stage.get(place, 1.0)
    gpu = Gpu(rank, START_NS + 120_000 + 5_000 * rank, slow, options.jitter_ratio, options.seed)
    gpu.end_skew = round(options.end_skew_us * 1000)
    gpu.late = round(options.late_input_us.get(rank, 0.0) * 1000)
    return gpu


def _step(step: int, runners: list[Runner]) -> dict[int, list[tuple[int, int]]]:
    """Issue, resolve and end one step; when each action ran."""
    before, actions = {}, {}
    for runner in runners:
        gpu = runner.r.gpu
        before[gpu.rank], gpu.step = len(gpu.device), step
        gpu.open(f"ProfilerStep#{step}", "user_annotation")
        gpu.cpu += gpu.late
        actions[gpu.rank] = runner.step()
        mine = gpu.device[before[gpu.rank] :]
        last = {w.stream: w for w in mine if any(x.purpose in GRADIENT_DUTIES for x in w.labels)}
        finish(runner.r, runner.stages, list(last.values()))
    resolve([r.r.gpu.device[before[r.r.gpu.rank] :] for r in runners])
    for runner in runners:
        runner.r.gpu.synchronize()
        runner.r.gpu.close()
    return {rank: [_span(ran, runners[rank].r.gpu) for ran in all_ran] for rank, all_ran in actions.items()}


def _span(ran: Ran, gpu: Gpu) -> tuple[int, int]:
    """From when inputs and rank are there (a first action without inputs: its first work) to when the results are."""
    start = gpu.device[ran.first].start - GAP_NS if ran.inputs is None else max(w.end for w in ran.inputs)
    return start, max(w.end for w in ran.results)
