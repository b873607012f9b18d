"""A dataset of many runs: appended, read as one and one by one, put together, let go."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.commands import cli
from tracekit.errors import BrokenInput, TracekitError, UnusableInput, UsageError
from tracekit.model import TABLES
from tracekit.output import parquet, runs

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
DAY = 86400 * 10**9


@pytest.fixture(scope="module")
def jobs() -> list[Any]:
    return [tk.analyze(SAMPLES / name, workers=1) for name in ("gloo-fsdp2", "gpu-tp2-pp2-dp2")]


@pytest.fixture(scope="module")
def both(jobs: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    jobs[0].append(root, "first")
    jobs[1].append(root, "second")
    return root


@pytest.fixture
def root(both: Path, tmp_path: Path) -> Path:
    return shutil.copytree(both, tmp_path / "runs")


def whole(root: Path, table: str) -> Any:
    """A table of all runs by its files, with the Hive column."""
    files = [str(p) for p in root.glob(f"run=*/{table}/**/*.parquet")]
    parts = ds.partitioning(flavor="hive")
    return ds.dataset(files, format="parquet", partitioning=parts, partition_base_dir=str(root)).to_table()


def rows(table: Any) -> list[str]:
    return sorted(str(r) for r in table.to_pylist())


def test_all_runs_read_as_one_with_the_run_as_a_column(jobs: list[Any], both: Path) -> None:
    for table in ("totals", "activities", "collectives"):
        read = whole(both, table)
        names = read.column("run").cast("string").to_pylist()
        assert [names.count(n) for n in ("first", "second")] == [j.arrow(table).num_rows for j in jobs]
    assert set(whole(both, "activities").column("rank").to_pylist()) == set(range(8))


def test_each_run_is_a_dataset_of_its_own(jobs: list[Any], both: Path) -> None:
    again = tk.read(both / "run=second")
    assert again.document["totals"] == jobs[1].document["totals"]
    for (rank, a, c), (wanted, wa, wc) in zip(
        runs.dataset.read(both / "run=second").detail(), parquet_detail(jobs[1]), strict=True
    ):
        assert (rank, rows(a), rows(c)) == (wanted, rows(wa), rows(wc))


def parquet_detail(result: Any) -> Any:
    from tracekit.output.details import RunSource

    return RunSource(result.run).detail()


def test_putting_ranks_together_changes_no_row(root: Path) -> None:
    before = {t: rows(whole(root, t)) for t in TABLES if t != "columns"}
    detail = [(r, rows(a), rows(c)) for r, a, c in runs.dataset.read(root / "run=second").detail()]
    found = runs.runs(root)
    assert sum(map(runs.compact, found)) == 2 * (8 + 2) - 2 * 2
    assert [r.files for r in runs.runs(root)] < [r.files for r in found]
    assert {t: rows(whole(root, t)) for t in before} == before
    assert [(r, rows(a), rows(c)) for r, a, c in runs.dataset.read(root / "run=second").detail()] == detail
    assert [runs.compact(r) for r in runs.runs(root)] == [0, 0]  # nothing left to do


def test_many_rows_go_into_several_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        runs, "ROWS_A_FILE", 2 * max(len(a) for _, a, _ in runs.dataset.read(root / "run=second").detail())
    )
    (run,) = [r for r in runs.runs(root) if r.name == "second"]
    before = rows(whole(root, "activities"))
    assert runs.compact(run) > 0
    assert 1 < len(list((run.folder / "activities").glob("*.parquet"))) < 8
    assert rows(whole(root, "activities")) == before


def test_a_run_of_a_folder_a_rank_is_put_together_too(jobs: list[Any], tmp_path: Path) -> None:
    target = runs.folder_of(tmp_path, "old")
    parquet.write(jobs[1].run, target)
    assert (target / "activities" / "rank=00003").is_dir()
    runs.compact(runs.runs(tmp_path)[0])
    ranks = pc.value_counts(whole(tmp_path, "activities").column("rank")).to_pylist()
    wanted = pc.value_counts(jobs[1].arrow("activities").column("rank")).to_pylist()
    assert sorted(map(str, ranks)) == sorted(map(str, wanted))


def test_a_recording_of_unknown_rank_stays_a_file(tmp_path: Path) -> None:
    source = next((SAMPLES / "gloo-fsdp2").glob("*rank1*"))
    job = tk.analyze(SAMPLES / "gloo-fsdp2", workers=1)
    assert source.exists()
    for place, (_, files, shift) in enumerate(job.run.details):
        job.run.details[place] = (None, files, shift)
    for row in job.run.tables["ranks"]:
        row["rank"] = None
    job.append(tmp_path, "lost")
    assert runs.compact(runs.runs(tmp_path)[0]) == 0


def test_names_come_from_the_recording(jobs: list[Any], tmp_path: Path) -> None:
    made = jobs[0].append(tmp_path)
    assert made.name.startswith("run=2026")
    with pytest.raises(UsageError, match="there is such a run"):
        jobs[0].append(tmp_path)
    assert jobs[0].append(tmp_path, overwrite=True) == made


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "x" * 101, "a=b", "ä"])
def test_names_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a name has letters"):
        runs.folder_of(tmp_path, name)


def test_a_dataset_of_one_run_takes_no_others(jobs: list[Any], tmp_path: Path) -> None:
    jobs[0].write(tmp_path / "one")
    with pytest.raises(UsageError, match="a dataset of one run"):
        jobs[0].append(tmp_path / "one", "second")
    with pytest.raises(UnusableInput, match="a dataset of one run"):
        runs.runs(tmp_path / "one")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="a file is in the way"):
        runs.folder_of(tmp_path / "file", "x")


def test_retention(root: Path) -> None:
    old, new = found = runs.runs(root)
    assert old.started_ns < new.started_ns
    assert runs.outdated(found, keep=1) == [old]
    assert runs.outdated(found, keep=5) == []
    assert runs.outdated(found, keep=0) == found
    age = new.started_ns + DAY
    assert runs.outdated(found, older_than_ns=DAY, now_ns=age) == [old]
    assert runs.outdated(found, keep=0, older_than_ns=DAY, now_ns=age) == found
    runs.remove(old)
    assert [p.name for p in root.iterdir()] == [new.folder.name]


def test_an_undated_run_is_as_old_as_its_dataset(root: Path) -> None:
    folder = root / "run=first"
    text = (folder / "manifest.json").read_text()
    origin = runs.dataset.read(folder).manifest["origin_unix_ns"]
    (folder / "manifest.json").write_text(text.replace(str(origin), "null"))
    os.utime(folder / "manifest.json", ns=(5 * DAY, 5 * DAY))
    (run,) = [r for r in runs.runs(root) if r.name == "first"]
    assert (run.started_ns, run.dated, runs.started(run)) == (5 * DAY, False, "~1970-01-06 00:00:00")


def test_a_killed_run_leaves_nothing_that_reads_as_one(root: Path) -> None:
    half = root / "run=half"
    (half / "totals").mkdir(parents=True)
    assert sorted(r.name for r in runs.runs(root)) == ["first", "second"]


def test_of_two_writers_of_one_name_the_second_is_refused(jobs: list[Any], tmp_path: Path, monkeypatch: Any) -> None:
    """Both looked before either had written."""
    written = parquet.write

    def late(*args: Any, **how: Any) -> Path:
        monkeypatch.setattr(parquet, "write", written)
        jobs[1].append(tmp_path, "same")
        return written(*args, **how)

    monkeypatch.setattr(parquet, "write", late)
    with pytest.raises(UsageError, match="another process wrote it meanwhile"):
        jobs[0].append(tmp_path, "same")
    assert [p.name for p in tmp_path.iterdir()] == ["run=same"]
    assert tk.read(tmp_path / "run=same").arrow("ranks").num_rows == 8


def test_compaction_never_undoes_a_run_that_was_written_meanwhile(
    jobs: list[Any], root: Path, monkeypatch: Any
) -> None:
    (stored,) = [r for r in runs.runs(root) if r.name == "second"]
    together = runs._together

    def meanwhile(*args: Any) -> None:
        monkeypatch.setattr(runs, "_together", together)
        together(*args)
        other = root / "other"
        parquet.write(jobs[0].run, other, rank_folders=False)
        stored.folder.rename(root / "gone")
        other.rename(stored.folder)

    monkeypatch.setattr(runs, "_together", meanwhile)
    with pytest.raises(UsageError, match="another process replaced it meanwhile"):
        runs.compact(stored)
    assert tk.read(stored.folder).arrow("ranks").num_rows == 2
    assert sorted(p.name for p in root.iterdir()) == ["gone", "run=first", "run=second"]


def test_damage_is_named(root: Path) -> None:
    (stored,) = [r for r in runs.runs(root) if r.name == "second"]
    hurt = next((stored.folder / "activities").rglob("*.parquet"))
    hurt.write_bytes(b"x")
    with pytest.raises(BrokenInput, match=hurt.name):
        runs.compact(stored)
    manifest = stored.folder / "manifest.json"
    for column, value in (("origin_unix_ns", 10**30), ("origin_unix_ns", "now"), ("world_size", "8")):
        manifest.write_text(json.dumps(stored.manifest | {column: value}))
        with pytest.raises(BrokenInput, match="manifest.json: origin_unix_ns and world_size: expected 64-bit integers"):
            runs.runs(root)


@pytest.fixture
def mixed(root: Path) -> Path:
    """Two runs that read, one whose manifest is cut, one of another major schema."""
    for name in ("cut", "future"):
        shutil.copytree(root / "run=first", root / f"run={name}")
    (root / "run=cut" / "manifest.json").write_text('{"schema_version"')
    manifest = root / "run=future" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema_version": "99.0"}))
    return root


def command(*args: object) -> Any:
    return CliRunner().invoke(cli, ["runs", *map(str, args)])


def is_told(result: Any) -> None:
    assert result.exit_code == 3
    assert "run=cut/manifest.json: cannot be read" in result.stderr
    assert "run=future: written with schema version 99.0" in result.stderr
    assert "2 runs left as found, all others done" in result.stderr


def test_a_broken_run_does_not_keep_the_list_from_the_others(mixed: Path) -> None:
    result = command("list", mixed)
    is_told(result)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["run", "second", "first"]
    result = command("list", mixed, "--json")
    is_told(result)
    assert [r["run"] for r in json.loads(result.stdout)] == ["second", "first"]


def test_a_broken_run_does_not_keep_others_from_being_put_together(mixed: Path) -> None:
    hurt = shutil.copytree(mixed / "run=second", mixed / "run=hurt")
    next((hurt / "collectives").rglob("*.parquet")).write_bytes(b"x")
    before = {r.name: r.files for r in runs.survey(mixed)[0]}
    result = command("compact", mixed)
    assert result.exit_code == 3
    assert "run=hurt/collectives/" in result.stderr
    assert "3 runs left as found" in result.stderr
    after = {r.name: r.files for r in runs.survey(mixed)[0]}
    assert after["hurt"] == before["hurt"]
    assert after["first"] < before["first"]
    assert after["second"] < before["second"]
    assert result.stdout == f"{sum(after.values())} files instead of {sum(before.values())}\n"


def test_a_broken_run_is_not_pruned_and_keeps_no_other_from_it(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = command("prune", mixed, "--keep", 1)
    is_told(result)
    assert result.stdout.startswith("removed second (")
    assert sorted(p.name for p in mixed.iterdir()) == ["run=cut", "run=first", "run=future"]

    def stuck(run: Any) -> None:
        raise TracekitError(f"{run.folder}: cannot be removed (no permission)")

    monkeypatch.setattr(runs, "remove", stuck)
    result = command("prune", mixed, "--keep", 0)
    assert result.exit_code == 3
    assert "run=first: cannot be removed" in result.stderr
    assert "removed" not in result.stdout


def test_only_broken_runs(mixed: Path) -> None:
    for name in ("first", "second"):
        shutil.rmtree(mixed / f"run={name}")
    for args in (("list",), ("list", "--json"), ("compact",), ("prune", "--keep", 1)):
        is_told(command(args[0], mixed, *args[1:]))


def test_a_run_that_goes_while_it_is_looked_at_is_no_broken_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = runs.dataset.read

    def late(folder: Path) -> Any:
        opened = read(folder)
        if folder.name == "run=first":
            shutil.rmtree(folder)
        return opened

    monkeypatch.setattr(runs.dataset, "read", late)
    found, broken = runs.survey(root)
    assert broken == []
    assert "second" in {r.name for r in found}


def test_one_run_is_no_dataset_of_many(root: Path) -> None:
    with pytest.raises(UnusableInput, match="a dataset of one run; name the folder of many runs"):
        runs.runs(root / "run=first")
    with pytest.raises(UnusableInput, match="a file; name the folder"):
        runs.runs(root / "run=first" / "manifest.json")
