#!/usr/bin/env python3
"""Write dashboards/grafana.json: panels on a dataset of runs for Grafana's DuckDB data source.

    python dashboards/make_grafana.py

The queries live here as text; the JSON is only their wrapping. Tests run each of them and compare the file with this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = {"type": "motherduck-duckdb-datasource", "uid": "${datasource}"}


def table(name: str, where: str = "*") -> str:
    """The files of a table over the chosen folder of runs."""
    return f"read_parquet('${{runs}}/run={where}/{name}/**/*.parquet', hive_partitioning = true, union_by_name = true)"


CHOSEN = "run IN (${run:sqlstring})"


def trend(value: str) -> str:
    """A value of each run at its start; runs without a time base are left out."""
    return f"""
SELECT make_timestamp(any_value(o.start_ns) // 1000) AS time, run, {value}
FROM {table("breakdown")} b
JOIN {table("steps")} s USING (run, rank, device, step)
JOIN (SELECT run, min(origin_ns) AS start_ns FROM {table("ranks")} WHERE used GROUP BY run) o USING (run)
WHERE s.complete AND {CHOSEN} AND o.start_ns > 1000000000000000000
GROUP BY run
ORDER BY time
"""


PANELS: list[dict[str, Any]] = [
    {
        "title": "Step time", "type": "timeseries", "unit": "ms", "width": 12,
        "sql": trend("median(b.window_ns) / 1e6 AS step_ms"),
    },
    {
        "title": "Exposed communication, share of the step", "type": "timeseries", "unit": "percentunit", "width": 12,
        "sql": trend("sum(b.exposed_comm_ns) / sum(b.window_ns) AS exposed_ratio"),
    },
    {
        "title": "Exposed time by strategy (ms a step and rank)", "type": "barchart", "unit": "ms", "width": 12,
        "sql": f"""
SELECT run, strategy, sum(attributed_ns) / count(DISTINCT (rank, device, step)) / 1e6 AS exposed_ms
FROM {table("exposure")}
WHERE step IS NOT NULL AND {CHOSEN}
GROUP BY run, strategy
ORDER BY run, exposed_ms DESC NULLS LAST
""",
    },
    {
        "title": "Ranks that others wait for", "type": "table", "unit": "ms", "width": 12,
        "sql": f"""
SELECT run, rank, cause, sum(wait_ns) / 1e6 AS others_waited_ms
FROM {table("blame")}
WHERE {CHOSEN}
GROUP BY run, rank, cause
ORDER BY others_waited_ms DESC
LIMIT 20
""",
    },
    {
        "title": "Waiting: rank by step (ms)", "type": "heatmap", "unit": "ms", "width": 12,
        "sql": f"""
SELECT run, rank, step, sum(attributed_wait_ns) / 1e6 AS wait_ms
FROM {table("exposure")}
WHERE step IS NOT NULL AND {CHOSEN}
GROUP BY run, rank, step
ORDER BY run, rank, step
""",
    },
    {
        "title": "Against theory", "type": "table", "unit": "short", "width": 12,
        "sql": f"""
SELECT run, strategy, purpose, op, group_size, payload_bytes, busbw_gbps, ceiling_gbps, verdict, reason
FROM {table("theory")}
WHERE {CHOSEN}
ORDER BY avoidable_ns DESC NULLS LAST
""",
    },
    {
        "title": "Findings", "type": "table", "unit": "short", "width": 24,
        "sql": f"""
SELECT run, severity, code, rank, message, cost_ns / 1e6 AS cost_ms, advice
FROM {table("findings")}
WHERE {CHOSEN}
ORDER BY cost_ns DESC NULLS LAST
""",
    },
    {
        "title": "Longest calls of the rank", "type": "table", "unit": "short", "width": 24,
        "sql": f"""
SELECT run, ts_ns / 1e6 AS at_ms, strategy, op, group_name, payload_bytes,
       dur_ns / 1e6 AS ms, wait_ns / 1e6 AS waited_ms
FROM {table("collectives")}
WHERE {CHOSEN} AND rank = ${{rank}} AND dur_ns IS NOT NULL
ORDER BY dur_ns DESC
LIMIT 50
""",
    },
]  # fmt: skip

VARIABLES: list[dict[str, Any]] = [
    {"name": "datasource", "type": "datasource", "query": SOURCE["type"], "label": "Data source"},
    {"name": "runs", "type": "textbox", "query": "/data/runs", "label": "Folder of runs"},
    {
        "name": "run", "type": "query", "label": "Run", "multi": True, "includeAll": True, "datasource": SOURCE,
        "query": f"SELECT DISTINCT run FROM {table('totals')} ORDER BY run", "refresh": 2,
    },
    {
        "name": "rank", "type": "query", "label": "Rank", "datasource": SOURCE,
        "query": f"SELECT DISTINCT rank FROM {table('totals')} WHERE {CHOSEN} ORDER BY rank", "refresh": 2,
    },
]  # fmt: skip


def panel(number: int, spec: dict[str, Any], x: int, y: int) -> dict[str, Any]:
    """One panel at a place of the grid."""
    return {
        "id": number,
        "title": spec["title"],
        "type": spec["type"],
        "datasource": SOURCE,
        "gridPos": {"h": 9, "w": spec["width"], "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": spec["unit"]}, "overrides": []},
        "options": {},
        "targets": [
            {
                "refId": "A",
                "datasource": SOURCE,
                "format": "time_series" if spec["type"] == "timeseries" else "table",
                "rawSql": spec["sql"].strip(),
            }
        ],
    }


def dashboard() -> dict[str, Any]:
    """Grafana's model: variables, panels in rows of 24 columns."""
    panels, x, y = [], 0, 0
    for number, spec in enumerate(PANELS, 1):
        if x + spec["width"] > 24:
            x, y = 0, y + 9
        panels.append(panel(number, spec, x, y))
        x += spec["width"]
    return {
        "title": "tracekit: runs",
        "uid": "tracekit-runs",
        "tags": ["tracekit"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-30d", "to": "now"},
        "templating": {"list": VARIABLES},
        "panels": panels,
    }


if __name__ == "__main__":
    (HERE / "grafana.json").write_text(json.dumps(dashboard(), indent=1) + "\n", "utf-8")
