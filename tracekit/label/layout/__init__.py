"""The job's mesh: degrees, order, and which axes each process group spans, from all evidence there is.

`solve` combines a user's map, descriptions, a declared layout, group numbers and rank sets; everything here is pure.
"""

from tracekit.label.job import Claim
from tracekit.label.layout.declared import parse_layout
from tracekit.label.layout.infer import solve
from tracekit.label.layout.kinds import JobGroup, Layout, Solution
from tracekit.label.layout.tables import LayoutTables, load_tables
from tracekit.label.layout.usermap import MapEntry, RunConfig, read_map, read_run_toml

__all__ = [
    "Claim", "JobGroup", "Layout", "LayoutTables", "MapEntry", "RunConfig", "Solution", "load_tables", "parse_layout",
    "read_map", "read_run_toml", "solve",
]  # fmt: skip
