"""What is simulated: a job and its schedule, and the checks that say what is not modelled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.simulate.errors import NotSimulated
from tracekit.simulate.options import check_places
from tracekit.theory.bubbles import V_SHAPED
from tracekit.theory.schedules import ScheduleError, build, canonical

if TYPE_CHECKING:
    from tracekit.simulate.options import Options
    from tracekit.theory.planning import Job
    from tracekit.theory.schedules import Schedule

FRAMEWORKS = ("megatron", "torch")
MAX_ACTIVITIES = 4_000_000
"""Layers times micro-batches times steps times ranks, roughly in device activities, beyond which a job is refused."""


def schedule_of(job: Job) -> Schedule:
    """The pipeline's schedule; UsageError where its sizes do not fit."""
    name = canonical(job.training.schedule or "1F1B")
    (m,) = job.training.need("micro_batches")
    if job.layout.pp == 1:
        name = "1F1B"
    given = None if name in V_SHAPED or name == "DualPipe" else job.training.virtual
    try:
        return build(name, job.layout.pp, m, given if job.layout.pp > 1 else None)
    except ScheduleError as e:
        raise UsageError(str(e)) from None


def settled(job: Job) -> Job:
    """The job with axes of one rank first in its order, where they change nothing and stand in nobody's way."""
    order = sorted(job.layout.order, key=lambda axis: getattr(job.layout, axis) > 1)
    if job.layout.pp == 1:
        order = [*(a for a in order if a != "pp"), "pp"]
    return replace(job, layout=replace(job.layout, order=tuple(order)))


def checked(job: Job, options: Options) -> Options:
    """The options with the framework settled. NotSimulated says what the simulator has no model of."""
    t, lay = job.training, job.layout
    framework = options.framework or ("torch" if t.data_parallel == "fsdp" else "megatron")
    if framework not in FRAMEWORKS:
        raise UsageError(f"--framework {framework!r}: expected {' or '.join(FRAMEWORKS)}")
    for wrong, why in (
        (framework == "torch" and lay.cp > 1, "torch's context parallelism is not simulated: use --framework megatron"),
        (framework == "torch" and t.data_parallel == "zero1", "ZeRO-1 is simulated with --framework megatron"),
        (framework == "megatron" and t.data_parallel == "fsdp", "FSDP is simulated with --framework torch"),
        (t.data_parallel == "zero2", "ZeRO-2 is not simulated; zero1 has the same traffic when reduced once a step"),
        (t.recompute == "selective", "selective recomputation is not simulated: use none or full"),
        (t.mtp, "multi-token prediction modules are not simulated"),
        (lay.etp > 1, "experts divided among tensor ranks are not simulated: give etp=1"),
        (lay.ep > 1 and job.model.experts is None, "ep is above 1, but the model has no experts"),
        (lay.ep > 1 and lay.tp > 1 and not t.sequence_parallel, "experts with tp need --sequence-parallel"),
        (job.model.experts is not None and lay.order[-1] != "pp", "expert groups need pp as the slowest axis"),
        (options.batched and (framework != "megatron" or canonical(t.schedule or "1F1B") != "1F1B"),
         "batched transfers are those of Megatron's 1F1B"),
    ):  # fmt: skip
        if wrong:
            raise NotSimulated(why)
    check_places(job, options)
    size = job.model.need("layers")[0] * t.need("micro_batches")[0] * options.steps * lay.world_size // lay.pp * 40
    if size > MAX_ACTIVITIES:
        raise UsageError(f"about {size} device activities (at most {MAX_ACTIVITIES}): simulate fewer steps or layers")
    return replace(options, framework=framework)
