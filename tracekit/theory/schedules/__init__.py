"""Pipeline schedules: their orders, and a simulator of the time they take.

>>> from tracekit.theory.schedules import Times, build, simulate
>>> timeline = simulate(build("1F1B", stages=4, micro_batches=8), Times(10, 12, 8))
>>> timeline.makespan_ns, timeline.bubble().over_step_ratio
(330, 0.2727272727272727)
"""

from __future__ import annotations

from tracekit.theory.schedules.actions import Action, Kind, Overlap, Step, parse_step, parts
from tracekit.theory.schedules.breakdown import Breakdown, breakdown
from tracekit.theory.schedules.build import NAMES, build, canonical
from tracekit.theory.schedules.critical import Link, critical_path
from tracekit.theory.schedules.errors import Deadlock, ScheduleError
from tracekit.theory.schedules.schedule import Schedule, from_order
from tracekit.theory.schedules.simulate import replay, simulate
from tracekit.theory.schedules.timeline import Bubble, IdleSplit, Timeline
from tracekit.theory.schedules.times import Times
from tracekit.theory.schedules.transfers import Transfer, transfers

__all__ = [
    "NAMES",
    "Action",
    "Breakdown",
    "Bubble",
    "Deadlock",
    "IdleSplit",
    "Kind",
    "Link",
    "Overlap",
    "Schedule",
    "ScheduleError",
    "Step",
    "Timeline",
    "Times",
    "Transfer",
    "breakdown",
    "build",
    "canonical",
    "critical_path",
    "from_order",
    "parse_step",
    "parts",
    "replay",
    "simulate",
    "transfers",
]
