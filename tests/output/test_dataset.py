"""The dataset on disk: readable by others, replaced whole, never over foreign files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import tracekit as tk
from tracekit.errors import UsageError
from tracekit.model import TABLES, arrow_schema
from tracekit.output import parquet

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "gloo-fsdp2"


@pytest.fixture(scope="module")
def result() -> Any:
    """The analysed sample."""
    return tk.analyze(SAMPLE, workers=1)


def test_layout_and_schemas(result: Any, tmp_path: Path) -> None:
    out = result.write(tmp_path / "out")
    manifest = json.loads((out / "manifest.json").read_text())
    assert set(manifest["tables"]) == set(TABLES)
    for name, table in TABLES.items():
        read = ds.dataset(out / name, format="parquet", partitioning="hive").to_table()
        assert read.num_rows == manifest["tables"][name]["rows"]
        stored = set(arrow_schema(name).names)
        assert set(read.column_names) == stored, name
        if table.per_rank:
            assert (out / name / "rank=00000").is_dir()


def test_columns_are_typed_and_times_sorted(result: Any, tmp_path: Path) -> None:
    out = result.write(tmp_path / "out")
    part = pq.read_table(next((out / "activities" / "rank=00001").glob("*.parquet")), partitioning=None)
    times = part.column("ts_ns").to_pylist()
    assert times == sorted(times)
    for field in part.schema:
        assert field.type == arrow_schema("activities").field(field.name).type
    metadata = part.schema.metadata
    assert metadata[b"tracekit.clock"] == b"unix"
    assert json.loads(metadata[b"tracekit.units"])["dur_ns"] == "ns"
    stamp = part.column("ts")[0].value
    assert stamp - times[0] == int(metadata[b"tracekit.origin_unix_ns"])


def test_pandas_reads_it_and_it_equals_the_result(result: Any, tmp_path: Path) -> None:
    import pandas as pd

    out = result.write(tmp_path / "out")
    read = pd.read_parquet(out / "exposure")
    assert len(read) == len(result.exposure)
    assert int(read["attributed_ns"].sum()) == int(result.exposure["attributed_ns"].sum())
    assert str(result.exposure["total_ns"].dtype) == "Int64"


def test_an_older_dataset_is_replaced(result: Any, tmp_path: Path) -> None:
    out = result.write(tmp_path / "out")
    (out / "steps" / "part-9.parquet").write_bytes(b"stale")
    result.write(out)
    assert [p.name for p in (out / "steps").iterdir()] == ["part-0.parquet"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_foreign_files_are_not_touched(result: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="did not write"):
        result.write(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    result.write(tmp_path, overwrite=True)
    assert (tmp_path / "manifest.json").exists()


def test_a_file_in_the_way(result: Any, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="a file is in the way"):
        result.write(tmp_path / "out", overwrite=True)


def test_what_must_never_be_deleted(result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    for file in SAMPLE.glob("rank*.json.gz"):
        (traces / file.name).write_bytes(file.read_bytes())
    own = tk.analyze(traces, workers=1)
    for folder in (traces, tmp_path):
        with pytest.raises(UsageError, match="would delete"):
            own.write(folder, overwrite=True)
    work = tmp_path / "work" / "here"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    with pytest.raises(UsageError, match="would delete"):
        result.write(work.parent, overwrite=True)
    assert len(list(traces.iterdir())) == 2
    own.write(traces / "out")
    again = tk.analyze(traces, workers=1)
    assert again.run.tables["ranks"] == own.run.tables["ranks"]


def test_a_link_to_a_folder_stays_a_link(result: Any, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    result.write(tmp_path / "link")
    result.write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "manifest.json").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_a_file_system_that_cannot_exchange_folders(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_exchange", lambda *_: False)
    out = result.write(tmp_path / "out")
    (out / "stale").write_text("")
    result.write(out)
    assert not (out / "stale").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_run_left_is_removed(result: Any, tmp_path: Path) -> None:
    import subprocess
    import sys

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    out = tmp_path / "out"
    left = tmp_path / f"{parquet._prefix(out)}{ended.pid}"
    left.mkdir()
    result.write(out)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("dies_in", ["_write_part", "_manifest", "_swap"])
def test_a_death_leaves_the_previous_dataset(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    out = result.write(tmp_path / "out")
    before = sorted(p.relative_to(out) for p in out.rglob("*"))

    def die(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet, dies_in, die)
    with pytest.raises(KeyboardInterrupt):
        result.write(out)
    assert sorted(p.relative_to(out) for p in out.rglob("*")) == before


@pytest.mark.parametrize("nameless", [{0}, {0, 1}])
def test_a_trace_without_rank_has_null_ranks(tmp_path: Path, nameless: set[int]) -> None:
    import gzip

    import pandas as pd

    for rank in (0, 1):
        trace = json.loads(gzip.decompress((SAMPLE / f"rank{rank}.json.gz").read_bytes()))
        if rank in nameless:
            del trace["distributedInfo"]
        (tmp_path / f"trace-{'ab'[rank]}.json").write_text(json.dumps(trace))
    out = tk.analyze([tmp_path / "trace-a.json", tmp_path / "trace-b.json"], workers=1).write(tmp_path / "out")
    expected = {None if r in nameless else r for r in (0, 1)}
    read = ds.dataset(out / "activities", format="parquet", partitioning="hive").to_table()
    assert set(read.column("rank").to_pylist()) == expected
    frame = pd.read_parquet(out / "collectives")
    assert {None if pd.isna(r) else int(r) for r in frame["rank"].unique()} == expected
    assert json.loads((out / "manifest.json").read_text())["tables"]["activities"]["partitioned_by"] == []
