"""A theoretical job as traces: what `tracekit.theory` says of a layout, placed in time and written as Kineto files.

from tracekit import simulate, theory
job = theory.job_of({"model": {"name": "llama3-8b"}, "layout": "tp=2,pp=2,dp=2", ...}, defaults=True)
simulate.write(simulate.simulate(job), folder)
"""

from __future__ import annotations

from tracekit.simulate.files import write
from tracekit.simulate.options import Options, options_of
from tracekit.simulate.run import Simulation, simulate
from tracekit.simulate.truth import truth

__all__ = ["Options", "Simulation", "options_of", "simulate", "truth", "write"]
