"""How a simulated job is run, and what is wrong with it: faults whose effect the analysis has to find."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.theory.planning import Job


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is run. `framework` None: torch for FSDP, else Megatron.

    `jitter_ratio`: spread of every kernel's duration; `seed` changes which, and which end skews. `batched`: exchanges
    between stages of 1F1B as Megatron's blocking batches, instead of transfers that nobody waits for before the result
    is needed.

    Faults. `slow`, `slow_stage`, `long_micro_batches`: rank, place in the pipeline, micro-batch → factor on its
    compute. `late_input_us`: rank → how long its host waits for data at the start of each step. `slow_link`: rank →
    factor on all transfers it takes part in. `p2p_latency_us`: what every transfer between stages takes more.
    `end_skew_us`: up to how much later than the first a rank sees a transfer end. `clock_us`, `drift_ppm`: node → how
    much its clock is ahead at the start, and runs fast.
    """

    steps: int = 3
    first_step: int = 0
    framework: str | None = None
    jitter_ratio: float = 0.0
    batched: bool = False
    seed: int = 0
    slow: dict[int, float] = field(default_factory=dict)
    slow_stage: dict[int, float] = field(default_factory=dict)
    long_micro_batches: dict[int, float] = field(default_factory=dict)
    late_input_us: dict[int, float] = field(default_factory=dict)
    slow_link: dict[int, float] = field(default_factory=dict)
    p2p_latency_us: float = 0.0
    end_skew_us: float = 0.0
    clock_us: dict[int, float] = field(default_factory=dict)
    drift_ppm: dict[int, float] = field(default_factory=dict)


KNOWN: dict[str, tuple[type, ...]] = {
    "steps": (int,), "first_step": (int,), "framework": (str,), "jitter_ratio": (int, float), "batched": (bool,),
    "seed": (int,), "p2p_latency_us": (int, float), "end_skew_us": (int, float),
    **dict.fromkeys(
        ("slow", "slow_stage", "long_micro_batches", "late_input_us", "slow_link", "clock_us", "drift_ppm"), (dict,)
    ),
}  # fmt: skip
FACTORS = ("slow", "slow_stage", "long_micro_batches", "slow_link")
SIGNED = ("clock_us", "drift_ppm")
MOST = {"clock_us": 1e9, "late_input_us": 1e9, "drift_ppm": 1e4}
"""What no job has: clocks a quarter of an hour apart."""


def options_of(table: dict[str, Any]) -> Options:
    """[simulate] of a run file, or options of the command; UsageError names the field."""
    given = dict(table)
    for key, value in table.items():
        if key not in KNOWN:
            raise UsageError(f"[simulate] has no field {key!r}; it knows {', '.join(KNOWN)}")
        if not isinstance(value, KNOWN[key]) or (isinstance(value, bool) and key != "batched"):
            raise UsageError(f"[simulate] {key} = {value!r}: wrong type")
        if isinstance(value, dict):
            given[key] = {_number(key, k, v): float(v) for k, v in value.items()}
    out = Options(**given)
    if out.steps < 1 or out.first_step < 0 or not 0 <= out.jitter_ratio < 1:
        raise UsageError("[simulate] expected steps from 1, first_step from 0, and a jitter_ratio from 0 to below 1")
    if not (0 <= out.p2p_latency_us <= MOST["clock_us"] and 0 <= out.end_skew_us <= MOST["clock_us"]):
        raise UsageError("[simulate] expected p2p_latency_us and end_skew_us from 0")
    return out


def _number(key: str, name: object, value: object) -> int:
    """The number that a fault's entry is for; UsageError where it or its value is none."""
    what = "a factor above zero" if key in FACTORS else "a number" if key in SIGNED else "a number from 0"
    text = str(name)
    right = text.isascii() and text.isdecimal() and len(text) < 10
    if right and isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value):
        low = value > 0 if key in FACTORS else key in SIGNED or value >= 0
        if low and abs(value) <= MOST.get(key, 1e6):
            return int(text)
    raise UsageError(f"[simulate] {key}: {name} = {value!r}: expected a number and {what}, as in 5 = 1.15")


_MANY = {"rank": "ranks", "stage": "stages", "micro-batch": "micro-batches", "node": "nodes"}


def check_places(job: Job, options: Options) -> None:
    """UsageError for a fault of a rank, stage, micro-batch or node that the job does not have."""
    lay, hw = job.layout, job.hardware
    (m,) = job.training.need("micro_batches")
    nodes = -(-lay.world_size // int(hw.need("gpus_per_node"))) if hw else lay.world_size
    kinds: tuple[tuple[str, int, tuple[dict[int, float], ...]], ...] = (
        ("rank", lay.world_size, (options.slow, options.late_input_us, options.slow_link)),
        ("stage", lay.pp, (options.slow_stage,)),
        ("micro-batch", m, (options.long_micro_batches,)),
        ("node", nodes, (options.clock_us, options.drift_ppm)),
    )
    for what, count, tables in kinds:
        for number in (n for table in tables for n in table if n >= count):
            raise UsageError(f"{what} {number}: the job has {_MANY[what]} 0 to {count - 1}")


def mapping(option: str, given: tuple[str, ...]) -> dict[str, float]:
    """`NUMBER=VALUE` texts of the command line; UsageError for others."""
    out: dict[str, float] = {}
    for text in given:
        name, sign, value = text.partition("=")
        try:
            out[name] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise UsageError(f"{option} {text!r} is not NUMBER=VALUE, as in 5=1.15")
    return out
