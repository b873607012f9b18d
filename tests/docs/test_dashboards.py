"""Queries of docs/dashboards.md and of the Grafana model run on a dataset of runs and give what they say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import tracekit as tk

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
SQL = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
JOBS = {"gloo": "gloo-fsdp2", "gpu": "gpu-tp2-pp2-dp2"}
MODEL = json.loads((ROOT / "dashboards" / "grafana.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {name: tk.analyze(ROOT / "sample_traces" / folder, workers=1) for name, folder in JOBS.items()}


@pytest.fixture(scope="module")
def folder(results: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `runs/` of two jobs."""
    where = tmp_path_factory.mktemp("dash")
    for name, result in results.items():
        result.append(where / "runs", name)
    return where


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("query", SQL, ids=lambda q: re.search(r"run=\*/(\w+)", q)[1])  # type: ignore[index]
def test_each_query_of_the_page_runs(query: str) -> None:
    rows = duckdb.sql(query)
    assert rows.columns
    assert len(rows.fetchall()) > 0


def test_attributed_time_of_the_query_is_the_results(results: dict[str, Any]) -> None:
    for row in duckdb.sql(f"SELECT run, strategy, sum(exposed_ms * 1) FROM ({SQL[1]}) GROUP BY ALL").fetchall():
        run, strategy, ms = row
        table = [r for r in results[run].run.tables["exposure"] if r["step"] is not None]
        wanted: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
        for r in table:
            if r["strategy"] == strategy:
                wanted.setdefault((r["purpose"], r["phase"]), []).append(r)
        parts = [
            sum(r["attributed_ns"] or 0 for r in rows) / len({(r["rank"], r["device"], r["step"]) for r in rows})
            for rows in wanted.values()
            if any(r["attributed_ns"] is not None for r in rows)
        ]
        assert (ms is None and not parts) or ms == pytest.approx(sum(parts) / 1e6)


@pytest.mark.parametrize("code", PYTHON, ids=["pandas", "polars"])
def test_pandas_and_polars_agree_with_the_result(code: str, results: dict[str, Any]) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    answer = names["answer"]
    if hasattr(answer, "iter_rows"):
        found = {(run, s): round(ms * 1e6) for run, s, ms in answer.iter_rows() if ms is not None}
    else:
        found = {k: int(v) for k, v in answer.items() if v == v}
    for name, result in results.items():
        for strategy in {r["strategy"] for r in result.run.tables["exposure"]}:
            total = sum(r["attributed_ns"] or 0 for r in result.run.tables["exposure"] if r["strategy"] == strategy)
            assert found.get((name, strategy), 0) == total


def test_types_and_units_survive(folder: Path) -> None:
    polars = pytest.importorskip("polars")
    types = {r[0]: r[1] for r in duckdb.sql(
        "DESCRIBE SELECT * FROM read_parquet('runs/run=*/collectives/**/*.parquet', hive_partitioning = true)"
    ).fetchall()}  # fmt: skip
    assert (types["run"], types["rank"], types["dur_ns"], types["strategy"]) == (
        "VARCHAR", "INTEGER", "BIGINT", "VARCHAR",
    )  # fmt: skip
    stamps = duckdb.sql("DESCRIBE SELECT ts FROM read_parquet('runs/run=*/activities/*.parquet')").fetchall()
    assert stamps[0][1].startswith("TIMESTAMP")
    schema = polars.scan_parquet("runs/run=*/collectives/**/*.parquet", hive_partitioning=True).collect_schema()
    assert (schema["rank"], schema["dur_ns"], schema["run"]) == (polars.Int32, polars.Int64, polars.String)
    (units,) = duckdb.sql(
        "SELECT DISTINCT decode(value) FROM parquet_kv_metadata('runs/run=gpu/totals/*.parquet') "
        "WHERE decode(key) = 'tracekit.units'"
    ).fetchall()
    assert json.loads(units[0])["exposed_ns"] == "ns"


def test_a_dataset_of_one_run_has_its_ranks_as_a_hive_column(results: dict[str, Any], tmp_path: Path) -> None:
    out = results["gpu"].write(tmp_path / "out")
    found = duckdb.sql(
        f"SELECT rank, count(*) FROM read_parquet('{out}/collectives/**/*.parquet', hive_partitioning = true, "
        "hive_types = {'rank': INTEGER}) GROUP BY rank ORDER BY rank"
    ).fetchall()
    calls = results["gpu"].arrow("collectives").column("rank").to_pylist()
    assert found == [(r, calls.count(r)) for r in range(8)]


def test_runs_of_an_older_schema_stand_beside_newer_ones(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs", tmp_path / "runs")
    shutil.copytree(ROOT / "tests" / "output" / "dataset-1.0", tmp_path / "runs" / "run=older")
    # What a still older version would have left out.
    import pyarrow.parquet as pq

    file = tmp_path / "runs" / "run=older" / "exposure" / "part-0.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["structural_ns", "overlap"]), file)
    where = str(tmp_path / "runs")
    for query in SQL:
        if "collectives/**" in query:  # its ranks are folders, those of runs a column: read by themselves
            continue
        assert duckdb.sql(query.replace("runs/run=", f"{where}/run=")).fetchall()
    found = duckdb.sql(
        f"SELECT run, count(structural_ns) FROM read_parquet('{where}/run=*/exposure/*.parquet', "
        "hive_partitioning = true, union_by_name = true) GROUP BY run"
    ).fetchall()
    assert dict(found)["older"] == 0


def filled(query: str) -> str:
    text = query.replace("${runs}", "runs").replace("${run:sqlstring}", "'gpu','gloo'").replace("${rank}", "1")
    assert "${" not in text
    return text


def test_the_model_is_what_its_script_writes(script: Callable[[str], ModuleType]) -> None:
    assert script("dashboards/make_grafana.py").dashboard() == MODEL


@pytest.mark.parametrize("panel", MODEL["panels"], ids=lambda p: p["title"])
def test_each_panel_has_rows(panel: dict[str, Any]) -> None:
    (target,) = panel["targets"]
    rows = duckdb.sql(filled(target["rawSql"]))
    assert rows.fetchall()
    if panel["type"] == "timeseries":
        assert str(dict(zip(rows.columns, rows.types, strict=True))["time"]).startswith("TIMESTAMP")


@pytest.mark.parametrize(
    "variable", [v for v in MODEL["templating"]["list"] if v["type"] == "query"], ids=lambda v: v["name"]
)
def test_each_variable_has_values(variable: dict[str, Any]) -> None:
    assert len(duckdb.sql(filled(variable["query"])).fetchall()) > 1


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for p in MODEL["panels"]:
        place = p["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
