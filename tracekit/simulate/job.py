"""What is simulated: a job, how its framework runs it, and the checks that say what is not modelled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.simulate.errors import NotSimulated
from tracekit.theory.bubbles import V_SHAPED
from tracekit.theory.schedules import ScheduleError, build, canonical

if TYPE_CHECKING:
    from tracekit.theory.planning import Job
    from tracekit.theory.schedules import Schedule

FRAMEWORKS = ("megatron", "torch")
MAX_ACTIVITIES = 4_000_000
"""Layers times micro-batches times steps times ranks, roughly in device activities, beyond which a job is refused."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is run. `framework` None: torch for FSDP, else Megatron. `slow`: rank → factor on its compute.

    `jitter_ratio`: spread of every kernel's duration, the same in every run. `batched`: exchanges between stages of
    1F1B as Megatron's blocking batches, instead of transfers that nobody waits for before the result is needed.
    """

    steps: int = 3
    first_step: int = 0
    framework: str | None = None
    slow: dict[int, float] = field(default_factory=dict)
    jitter_ratio: float = 0.0
    batched: bool = False


def options_of(table: dict[str, Any]) -> Options:
    """[simulate] of a run file, or options of the command; UsageError names the field."""
    known: dict[str, tuple[type, ...]] = {
        "steps": (int,), "first_step": (int,), "framework": (str,), "slow": (dict,), "jitter_ratio": (int, float),
        "batched": (bool,),
    }  # fmt: skip
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"[simulate] has no field {key!r}; it knows {', '.join(known)}")
        if not isinstance(value, known[key]) or (isinstance(value, bool) and key != "batched"):
            raise UsageError(f"[simulate] {key} = {value!r}: wrong type")
    slow: dict[int, float] = {}
    for rank, factor in table.get("slow", {}).items():
        if not str(rank).isdecimal() or not isinstance(factor, (int, float)) or not 0 < factor < inf:
            raise UsageError(
                f"[simulate] slow: {rank} = {factor!r}: expected a rank and a factor above zero, as in 5 = 1.15"
            )
        slow[int(rank)] = float(factor)
    out = Options(**{**table, "slow": slow})
    if out.steps < 1 or out.first_step < 0 or not 0 <= out.jitter_ratio < 1:
        raise UsageError("[simulate] expected steps from 1, first_step from 0, and a jitter_ratio from 0 to below 1")
    return out


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
    unknown = [r for r in options.slow if not 0 <= r < lay.world_size]
    if unknown:
        raise UsageError(f"slow rank {unknown[0]}: the job has ranks 0 to {lay.world_size - 1}")
    size = job.model.need("layers")[0] * t.need("micro_batches")[0] * options.steps * lay.world_size // lay.pp * 40
    if size > MAX_ACTIVITIES:
        raise UsageError(f"about {size} device activities (at most {MAX_ACTIVITIES}): simulate fewer steps or layers")
    return replace(options, framework=framework)
