"""The JSON object of `tracekit analyze --json`; scripts depend on its keys."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tracekit.analysis.sites import summed
from tracekit.model import SCHEMA_VERSION, TABLES
from tracekit.version import __version__

if TYPE_CHECKING:
    from tracekit.ingest.run import RunTables

_FINDING = tuple(c.name for c in TABLES["findings"].columns)


def document(run: RunTables) -> dict[str, Any]:
    """All results in one object. Keys without an analysis in this version hold empty lists or null."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "sources": [r["source"] for r in run.tables["ranks"]]
        + [r["source"] for r in run.tables["stragglers"] if r["scope"] == "job"],
        "ranks": run.tables["ranks"],
        "layout": run.layout,
        "frameworks": list(run.frameworks),
        "totals": run.tables["totals"],
        "steps": run.tables["steps"],
        "breakdown": run.tables["breakdown"],
        "exposure": run.tables["exposure"],
        "groups": run.tables["groups"],
        "matches": run.rows("matches"),
        "waiting": run.tables["waiting"],
        "clocks": run.tables["clocks"],
        "imbalance": run.tables["imbalance"],
        "blame": run.tables["blame"],
        "pipeline": run.rows("pipeline"),
        "bubble": run.tables["bubble"],
        "what_if": run.tables["what_if"],
        "critical_path": run.rows("critical_path"),
        "critical_steps": run.tables["critical_steps"],
        "critical_shares": run.tables["critical_shares"],
        "stragglers": run.tables["stragglers"],
        "hang": run.hang,
        "theory": run.tables["theory"],
        "theory_inputs": run.theory_inputs,
        "sites": summed(run.sites),
        "coverage": run.coverage,
        "findings": [dict.fromkeys(_FINDING) | f for f in run.tables["findings"]],
        "health": run.tables["health"],
        "files": run.tables["files"],
    }


def dumps(value: dict[str, Any]) -> str:
    """JSON text; strings from traces are escaped to ASCII, NaN is impossible."""
    return json.dumps(value, indent=1, allow_nan=False)
