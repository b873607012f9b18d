"""A dataset reads back as what was written, by this version and from older ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tracekit as tk
from tracekit.errors import BrokenInput, UnusableInput, UsageError
from tracekit.model import TABLES, arrow_schema
from tracekit.output import dataset

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces"
OLDER = Path(__file__).parent / "dataset-1.0"
"""The sample gloo-fsdp2 as the first version of the schema wrote it; never written again."""


@pytest.fixture(scope="module", params=["gpu-tp2-pp2-dp2", "gloo-fsdp2"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    result = tk.analyze(SAMPLES / request.param, workers=1)
    return result, result.write(tmp_path_factory.mktemp("read") / "out")


@pytest.fixture
def copy(both: tuple[Any, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(both[1], tmp_path / "copy"))


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())


def test_every_table_reads_back_the_same(both: tuple[Any, Path]) -> None:
    result, out = both
    again = tk.read(out)
    for name in TABLES:
        table = again.arrow(name)
        assert table.schema.equals(arrow_schema(name)), name
        assert plain(table) == plain(result.arrow(name)), name


def test_all_reports_of_it_are_the_same(both: tuple[Any, Path]) -> None:
    result, out = both
    again = tk.read(out)
    assert json.loads(again.to_json()) == json.loads(result.to_json())
    assert again.to_text(steps=True, all_ranks=True) == result.to_text(steps=True, all_ranks=True)
    assert again.to_markdown() == result.to_markdown()


def test_ranks_steps_and_columns_can_be_chosen(both: tuple[Any, Path]) -> None:
    result, out = both
    step = result.run.tables["steps"][0]["step"]
    part = dataset.read(out).arrow("activities", ["rank", "ts_ns", "step"], ranks=[1], steps=[step])
    wanted = [r for r in plain(result.arrow("activities")) if r["rank"] == 1 and r["step"] == step]
    assert wanted
    assert plain(part) == [{k: r[k] for k in ("rank", "ts_ns", "step")} for r in wanted]


def test_what_an_older_version_did_not_know_is_null(copy: Path) -> None:
    shutil.rmtree(copy / "what_if")
    shutil.rmtree(copy / "collectives")
    (copy / "run.json").unlink()
    file = copy / "exposure" / "part-0.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["structural_ns", "overlap"]), file)
    again = tk.read(copy)
    assert again.arrow("what_if").num_rows == again.arrow("collectives").num_rows == 0
    assert again.arrow("exposure").schema.equals(arrow_schema("exposure"))
    assert all(r["structural_ns"] is None and r["total_ns"] is not None for r in again.run.tables["exposure"])
    assert "exposed" in again.to_text()


def test_columns_of_a_newer_minor_version_are_passed_over(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"schema_version": "1.99"}))
    file = copy / "steps" / "part-0.parquet"
    steps = pq.read_table(file)
    pq.write_table(steps.append_column("news", pa.array(range(len(steps)))), file)
    assert tk.read(copy).arrow("steps").schema.equals(arrow_schema("steps"))


def test_the_committed_dataset_of_the_first_schema_reads() -> None:
    old = tk.read(OLDER)
    assert old.document["schema_version"]
    truth = json.loads((OLDER / "totals.json").read_text())
    found = [{k: t[k] for k in truth[0]} for t in old.run.tables["totals"]]
    assert found == truth
    assert (
        old.arrow("activities").num_rows
        == json.loads((OLDER / "manifest.json").read_text())["tables"]["activities"]["rows"]
    )
    assert "communication that nothing hid" in old.to_text()


@pytest.mark.parametrize("version", ["2.0", "0.9", None])
def test_another_major_version_is_refused(copy: Path, version: str | None) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"schema_version": version}))
    with pytest.raises(UnusableInput, match=r"schema version .*this tracekit reads 1\.x"):
        tk.read(copy)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema_version": NaN'])
def test_a_damaged_manifest_is_named(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text)
    with pytest.raises(BrokenInput, match=r"manifest\.json"):
        tk.read(copy)


def test_a_damaged_table_is_named(copy: Path) -> None:
    (copy / "steps" / "part-0.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(BrokenInput, match="steps"):
        tk.read(copy).arrow("steps")


def test_no_dataset_and_no_second_writing(both: tuple[Any, Path], tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="no dataset"):
        tk.read(tmp_path)
    with pytest.raises(UsageError, match="copy"):
        tk.read(both[1]).write(tmp_path / "again")
    with pytest.raises(UsageError, match="no table"):
        tk.read(both[1]).arrow("nothing")
