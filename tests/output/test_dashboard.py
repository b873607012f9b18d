"""What the dashboard shows: its numbers are those of the reports, its text is escaped, its places are addresses."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracekit as tk
from tracekit.errors import UnusableInput, UsageError
from tracekit.output import dataset
from tracekit.output.dashboard import Store, app, store, view
from tracekit.output.dashboard.where import Where

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces"
OLDER = Path(__file__).parent / "dataset-1.0"


@pytest.fixture(scope="module")
def gpu() -> Any:
    return tk.analyze(SAMPLES / "gpu-tp2-pp2-dp2", workers=1)


@pytest.fixture(scope="module")
def root(gpu: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "runs"
    gpu.append(folder, "gpu")
    tk.analyze(SAMPLES / "gloo-fsdp2", workers=1).append(folder, "fsdp")
    return folder


def html(parts: list[Any]) -> str:
    return "".join(p for p in parts if isinstance(p, str))


def shown(root: Path, search: str) -> str:
    found = Store([root])
    return html(view.parts(found, found.runs(), Where.of(search)))


def test_key_figures_are_those_of_the_verdict(gpu: Any, root: Path) -> None:
    found = Store([root])
    figures = found.overview(found.runs()["gpu"])
    said = re.search(r"([\d.]+) % of a step is communication that nothing hid: ([\d.]+) of ([\d.]+) ms", gpu.to_text())
    assert said is not None
    assert figures.exposed_ratio is not None
    assert figures.window_ns is not None
    assert f"{100 * figures.exposed_ratio:.1f}" == said[1]
    assert f"{figures.parts['exposed_comm_ns'] / 1e6:.1f}" == said[2]
    assert f"{figures.window_ns / 1e6:.1f}" == said[3]


def test_parts_add_up_to_the_step_and_strategies_to_the_exposed_time(root: Path) -> None:
    found = Store([root])
    for run in found.runs().values():
        f = found.overview(run)
        assert sum(f.parts.values()) == pytest.approx(f.window_ns, rel=1e-9)
        assert sum(v or 0 for v in f.exposed.values()) == pytest.approx(f.parts["exposed_comm_ns"], rel=1e-9)


def test_a_rank_and_step_shows_its_row_of_the_tables(gpu: Any, root: Path) -> None:
    breakdown = next(b for b in gpu.run.tables["breakdown"] if b["rank"] == 3 and b["step"] == 21)
    exposure = [e for e in gpu.run.tables["exposure"] if e["rank"] == 3 and e["step"] == 21]
    page = shown(root, "?run=gpu&step=21&rank=3")
    for value in (breakdown["window_ns"], breakdown["exposed_comm_ns"]):
        assert f'<data value="{value}">' in page
    for strategy in {e["strategy"] for e in exposure}:
        assert f'<data value="{sum(e["attributed_ns"] for e in exposure if e["strategy"] == strategy)}">' in page


def test_calls_are_those_of_the_rank_step_and_strategy(gpu: Any, root: Path) -> None:
    calls = gpu.arrow("collectives").to_pylist()
    tp = [c["id"] for c in calls if (c["rank"], c["step"], c["strategy"]) == (3, 21, "tp")]
    page = shown(root, "?run=gpu&step=21&rank=3&strategy=tp")
    second = shown(root, "?run=gpu&step=21&rank=3&strategy=tp&page=1")
    ids = [int(n) for p in (page, second) for n in re.findall(r"call=(\d+)", p)]
    assert sorted(ids) == sorted(tp)
    assert f"{len(tp)} calls in this step" in page


def test_a_call_shows_its_columns_and_match(gpu: Any, root: Path) -> None:
    call = next(c for c in gpu.arrow("collectives").to_pylist() if c["rank"] == 3 and c["match_id"] is not None)
    page = shown(root, f"?run=gpu&rank=3&call={call['id']}")
    assert "On all ranks" in page
    assert f"<td>{call['op_raw']}</td>" in page


def test_steps_that_the_file_cuts_are_listed_as_cut(gpu: Any, root: Path) -> None:
    page = shown(root, "?run=gpu")
    for s in gpu.run.tables["steps"]:
        if s["rank"] == 0:
            assert f">{s['name']}{'' if s['complete'] else ' (cut)'}</a>" in page


def test_mistakes_in_the_address_are_told(root: Path) -> None:
    assert "No such run" in shown(root, "?run=none")
    assert "no steps here" in shown(root, "?run=gpu&step=99")
    assert "no such call on this rank" in shown(root, "?run=gpu&rank=77")
    assert "no call 99999" in shown(root, "?run=gpu&rank=0&call=99999")


def test_a_damaged_run_leaves_the_others(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "runs")
    (copy / "run=gpu" / "breakdown" / "part-0.parquet").write_bytes(b"<b>no</b>")
    page = shown(copy, "")
    assert "cannot be read" in page
    assert 'href="?run=fsdp"' in page
    assert "<b>no</b>" not in page
    rows = re.findall(r"<tr>(<td.*?)</tr>", page)
    assert [sum(int(n or 1) for n in re.findall(r'<td(?: class="n")?(?: colspan="(\d+)")?>', row)) for row in rows] == [
        9,
        9,
    ]


def test_names_are_escaped_everywhere(root: Path, tmp_path: Path) -> None:
    hostile = "<script>alert(1)<!--\"'"
    copy = shutil.copytree(root, tmp_path / "runs")
    (copy / "run=gpu").rename(copy / f"run={hostile}".replace("/", ""))
    for search in ("", Where(run=hostile).query, Where(run=hostile, rank="0").query, Where(run="<i>", rank="1").query):
        page = shown(copy, search)
        assert "<script" not in page
        assert "<i>" not in page.replace("<i style", "")


def test_single_datasets_and_older_ones_are_runs_by_their_folders(gpu: Any, root: Path, tmp_path: Path) -> None:
    gpu.write(tmp_path / "out")
    found = Store([tmp_path / "out", OLDER, root])
    assert set(found.runs()) == {"out", "dataset-1.0", "gpu", "fsdp"}
    assert found.overview(found.runs()["dataset-1.0"]).window_ns is not None
    assert "Communication calls" in shown_of(found, "?run=out&rank=0")
    assert "Communication calls" in shown_of(found, "?run=dataset-1.0&rank=0")


def shown_of(found: Store, search: str) -> str:
    return html(view.parts(found, found.runs(), Where.of(search)))


def test_runs_of_the_same_name_keep_apart(root: Path, tmp_path: Path) -> None:
    other = shutil.copytree(root, tmp_path / "others")
    assert set(Store([root, other]).runs()) == {"runs/gpu", "others/gpu", "runs/fsdp", "others/fsdp"}
    assert list(Store([root], last=1).runs()) == list(Store([root]).runs())[-1:]


def test_a_run_that_is_written_again_is_read_again(gpu: Any, root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "runs")
    found = Store([copy])
    before = found.overview(found.runs()["fsdp"])
    gpu.append(copy, "fsdp", overwrite=True)
    assert found.overview(found.runs()["fsdp"]).ranks == 8 != before.ranks


def test_no_runs_is_an_error_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="--as-run"):
        Store([tmp_path]).runs()


def test_only_the_chosen_rank_of_the_big_tables_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, Any]] = []
    arrow = dataset.Dataset.arrow

    def noted(self: Any, table: str, columns: Any = None, **only: Any) -> Any:
        read.append((table, only.get("ranks")))
        return arrow(self, table, columns, **only)

    monkeypatch.setattr(dataset.Dataset, "arrow", noted)
    shown(root, "")
    shown(root, "?run=gpu")
    shown(root, "?run=gpu&rank=3")
    big = {(t, str(r)) for t, r in read if t in ("activities", "collectives")}
    assert big == {("collectives", "[3]")}


NAMES = st.text(max_size=20)
PLACES = st.builds(
    Where, run=NAMES.filter(bool) | st.none(), step=st.integers(-(2**20), 2**20) | st.none(), strategy=NAMES.filter(bool) | st.none(),
    rank=st.none() | st.just("unknown") | st.integers(0, 10**6).map(str), call=st.integers(0, 2**20) | st.none(),
    page=st.integers(0, 1000),
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLACES)
def test_an_address_reads_back_as_its_place(where: Where) -> None:
    assert Where.of(where.query) == where


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text())
def test_any_address_is_some_place(search: str) -> None:
    Where.of(search)


def test_a_choice_takes_back_what_was_chosen_within() -> None:
    there = Where(run="a", step=3, rank="1", strategy="tp", call=7, page=2)
    assert there.to(run="b") == Where(run="b", strategy="tp")
    assert there.to(step=4) == Where(run="a", step=4, rank="1", strategy="tp")
    assert there.to(rank=None, call=None) == Where(run="a", step=3, strategy="tp")


def test_without_panel_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'tracekit\[dashboard\]'"):
        app.require()


def test_unknown_numbers_stay_unknown() -> None:
    import pyarrow as pa

    rows = pa.table({"strategy": ["tp", "tp", "dp"], "attributed_ns": pa.array([1, None, 3], pa.int64())})
    sums = store.by(rows, "strategy", ["attributed_ns"], "sum")
    assert sums == {"tp": {"attributed_ns": None}, "dp": {"attributed_ns": 3}}


@pytest.fixture
def session(root: Path, tmp_path: Path) -> Any:
    """A copy of the runs, and what a reader of it sees at an address: the body's HTML."""
    pytest.importorskip("panel", reason="needs the extra `dashboard`")
    copy = shutil.copytree(root, tmp_path / "runs")

    def at(search: str, found: Store | None = None) -> str:
        reader = app.Session(found or Store([copy]), search)
        return "".join(str(getattr(pane, "object", "")) for pane in reader.body.objects)

    return copy, at


def test_a_broken_manifest_hides_its_run_alone(session: Any) -> None:
    copy, at = session
    (copy / "run=gpu" / "manifest.json").write_text("{")
    page = at("")
    assert 'href="?run=fsdp"' in page
    assert "Not shown" in page
    assert "run=gpu/manifest.json: cannot be read" in page
    (copy / "run=fsdp" / "manifest.json").write_text("[]")
    page = at("")
    assert "run=gpu/manifest.json: cannot be read" in page
    assert "run=fsdp/manifest.json: expected a JSON object" in page


def test_a_run_that_is_deleted_while_open_is_told(session: Any) -> None:
    copy, at = session
    found = Store([copy])
    reader = app.Session(found, "?run=gpu&rank=3")
    shutil.rmtree(copy / "run=gpu")
    reader.show(Where(run="gpu", rank="4"))
    assert "No such run here" in "".join(p.object for p in reader.body.objects)
    assert "run=gpu" not in at("", found)
    shutil.rmtree(copy)
    assert "no runs" in at("?run=fsdp", found)


def test_a_run_that_goes_in_the_middle_of_a_view_is_told(root: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(root, tmp_path / "runs")
    found = Store([copy])
    listed = found.runs()
    shutil.rmtree(copy / "run=gpu")
    page = html(view.parts(found, listed, Where()))
    assert "the run may be gone" in page
    assert 'href="?run=fsdp"' in page
    assert "no dataset" in html(view.parts(found, listed, Where(run="gpu")))


def test_a_defect_is_told_on_the_page_and_to_the_server(
    session: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, at = session

    def broken(*_: Any) -> Any:
        raise KeyError("<b>what</b>")

    monkeypatch.setattr(view, "overview", broken)
    page = at("")
    assert "This place cannot be shown (KeyError: &#x27;&lt;b&gt;what&lt;/b&gt;&#x27;)" in page
    assert "broken" in caplog.text  # the traceback
    assert "Rank 3" in at("?run=gpu&rank=3")


@pytest.mark.parametrize("harm", ["gone", "cut", "empty", "nulls"])
def test_a_damaged_table_is_told_or_does_not_matter(root: Path, tmp_path: Path, harm: str) -> None:
    import pyarrow.parquet as pq

    for table in ("breakdown", "exposure", "steps", "totals", "findings", "collectives"):
        copy = shutil.copytree(root, tmp_path / table)
        for file in (copy / "run=gpu" / table).rglob("*.parquet"):
            if harm == "gone":
                file.unlink()
            elif harm == "cut":
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            else:
                whole = pq.ParquetFile(file).read()
                nulls = pa.table({f.name: pa.nulls(len(whole), f.type) for f in whole.schema})
                pq.write_table(whole.slice(0, 0) if harm == "empty" else nulls, file)
        places = ("", "?run=gpu", "?run=gpu&step=21&rank=3&strategy=tp", "?run=gpu&rank=3&call=7")
        pages = [shown(copy, search) for search in places]
        assert "fsdp" in pages[0]
        if harm == "cut" and table not in ("totals", "steps"):
            assert "cannot be read" in "".join(pages), table


def test_a_folder_whose_name_is_no_text(session: Any) -> None:
    copy, at = session
    shutil.rmtree(copy / "run=fsdp")
    try:
        (copy / "run=gpu").rename(copy / os.fsdecode(b"run=\xff\xfe"))
    except OSError:
        pytest.skip("this file system takes only names that are text")
    page = at("")
    assert "\ufffd\ufffd" in page
    page.encode("utf-8")
    at(Where(run="\ufffd\ufffd", rank="3").query).encode("utf-8")


def test_runs_are_read_once(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand of them each click would otherwise read a thousand manifests."""
    copy, at = session
    from tracekit.output import runs

    read: list[str] = []
    listed = runs.listed
    monkeypatch.setattr(runs, "listed", lambda folder: read.append(folder.name) or listed(folder))
    found = Store([copy])
    for search in ("", "?run=gpu", "?run=fsdp&rank=0", ""):
        at(search, found)
    assert sorted(read) == ["run=fsdp", "run=gpu"]
    os.utime(copy / "run=gpu" / "manifest.json", ns=(1, 1))
    at("", found)
    assert sorted(read) == ["run=fsdp", "run=gpu", "run=gpu"]


@pytest.mark.parametrize(
    ("how", "words"),
    [({"address": "fe80::1"}, "only ::1 and :: of IPv6"), ({"origins": ["a:b:c"]}, "--origin .*expected HOST:PORT")],
)
def test_addresses_that_cannot_be_served(root: Path, how: dict[str, Any], words: str) -> None:
    pytest.importorskip("panel", reason="needs the extra `dashboard`")
    with pytest.raises(UsageError, match=words):
        app.serve(Store([root]), show=False, **how)


def test_hostile_names_of_calls_are_text_and_short(root: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    copy = shutil.copytree(root, tmp_path / "runs")
    evil = "</script><img src=x onerror=alert(1)>\"'\x00\u202e" + "x" * 10_000
    for file in (copy / "run=gpu" / "collectives").rglob("*.parquet"):
        calls = pq.ParquetFile(file).read()
        for name in ("scope", "op_raw", "op", "group_name", "strategy", "purpose"):
            at = calls.schema.names.index(name)
            calls = calls.set_column(at, name, pa.array([evil] * len(calls)).dictionary_encode())
        pq.write_table(calls, file)
    for search in ("?run=gpu&rank=3", "?run=gpu&rank=3&step=21", "?run=gpu&rank=3&call=7"):
        page = shown(copy, search)
        assert "&lt;/script&gt;&lt;img" in page
        assert not re.search(r"<(img|script|/script)|[\x00\u202e]", page)
        assert "x" * 400 not in page
