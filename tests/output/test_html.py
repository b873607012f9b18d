"""The HTML report without a browser: its numbers are the tables', its text is escaped, what is missing says why."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.commands import cli
from tracekit.errors import UnusableInput, UsageError
from tracekit.model import TABLES

hv = pytest.importorskip("holoviews", reason="needs the extra `plots`")
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


class Page(HTMLParser):
    """What a page holds: text of each element with an id, exact values of numbers, scripts, ids and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.values: dict[str, list[float]] = {}
        self.attributes: list[tuple[str, str, str | None]] = []
        self._section = self._table = ""
        self._open: dict[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.attributes += [(tag, k, v) for k, v in attrs]
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "section":
            self._section = str(found["id"])
        if tag == "table":
            self._table = str(found.get("id") or "")
        if tag == "a":
            self.links.append(str(found.get("href")))
        if tag == "script":
            self._open = found
        if tag == "data":
            for place in {self._section, self._table} - {""}:
                self.values.setdefault(place, []).append(float(str(found["value"])))

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._table = ""

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.scripts.append((self._open, data))
            self._open = None

    def block(self, name: str) -> Any:
        return next(json.loads(text) for attrs, text in self.scripts if attrs.get("id") == name)


@pytest.fixture(scope="module")
def gpu() -> Any:
    return tk.analyze(SAMPLES / "gpu-tp2-pp2-dp2", workers=1)


@pytest.fixture(scope="module")
def text(gpu: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return gpu.report(tmp_path_factory.mktemp("page") / "r.html").read_text("utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_embedded_tables_are_those_of_json_and_parquet(page: Page, gpu: Any, tmp_path: Path) -> None:
    found = page.block("tracekit-data")
    document = json.loads(gpu.to_json())
    written = tk.read(gpu.write(tmp_path / "out"))
    assert found["left_out"] == {}
    assert len(found["tables"]) > 10
    for name, table in found["tables"].items():
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        assert table["columns"] == [c.name for c in TABLES[name].columns]
        assert rows == json.loads(json.dumps(written.arrow(name).to_pylist())), name
        if name in document:
            kept = [{c: r[c] for c in table["columns"]} for r in document[name]]
            assert rows == kept, name


def test_numbers_in_the_text_are_sums_and_means_of_the_tables(page: Page, gpu: Any) -> None:
    whole = {(s["rank"], s["step"]) for s in gpu.run.tables["steps"] if s["complete"]}
    rows = [b for b in gpu.run.tables["breakdown"] if (b["rank"], b["step"]) in whole]
    assert rows
    window = sum(b["window_ns"] for b in rows) / len(rows)
    exposed = sum(b["exposed_comm_ns"] for b in rows) / len(rows)
    assert page.values["verdict"][:2] == [pytest.approx(window), pytest.approx(exposed)]
    shown = page.values["exposure-table"]
    exposure = [e for e in gpu.run.tables["exposure"] if (e["rank"], e["step"]) in whole]
    phases = {(e["strategy"], e["phase"]) for e in exposure}
    per_row = len(shown) // len(phases)
    attributed = sum(shown[i * per_row + 3] for i in range(len(phases)))
    assert attributed == pytest.approx(sum(e["attributed_ns"] for e in exposure) / len(whole))
    assert attributed == pytest.approx(exposed)


def test_blame_adds_up_to_the_waiting_of_calls_that_tell_the_last_rank(page: Page, gpu: Any) -> None:
    last = {m["match_id"]: m["last_rank"] for m in gpu.run.rows("matches")}
    calls = gpu.arrow("collectives").select(["rank", "match_id", "wait_ns"]).to_pylist()
    waits: dict[int, int] = {}
    for c in calls:
        if c["wait_ns"] and last.get(c["match_id"]) not in (None, c["rank"]):
            waits[last[c["match_id"]]] = waits.get(last[c["match_id"]], 0) + c["wait_ns"]
    assert waits
    assert page.values["blame-table"] == sorted(map(float, waits.values()), reverse=True)[:10]


def test_origins_of_lateness_are_the_blame_tables(page: Page, gpu: Any) -> None:
    sums: dict[Any, float] = {}
    for b in gpu.run.tables["blame"]:
        sums[b["rank"], b["cause"]] = sums.get((b["rank"], b["cause"]), 0.0) + b["wait_ns"]
    assert sums
    told = sorted((v for (rank, _), v in sums.items() if rank is not None), reverse=True)
    unknown = [v for (rank, _), v in sums.items() if rank is None]
    assert page.values["origins-table"][::3] == told[:12] + unknown


def test_the_timeline_of_many_ranks_holds_some_evenly_spread() -> None:
    from tracekit.output.html import timeline

    windows = {(rank, 0): (0, 1) for rank in range(1024)}
    ranks = [rank for rank, _ in timeline._spread(windows)]
    assert len(ranks) == timeline.MOST_LANES
    assert (ranks[0], ranks[-1]) == (0, 1023)
    assert {b - a for a, b in itertools.pairwise(ranks)} <= {4, 5}


def test_the_timeline_holds_every_ns_of_the_step(page: Page, gpu: Any) -> None:
    import gzip

    payload = page.block("payloads")["timeline"]
    ranks = json.loads(gzip.decompress(base64.b64decode(payload["ranks"])))
    assert [r["name"] for r in ranks] == [str(t["rank"]) for t in gpu.run.tables["totals"]]
    rows = {b["rank"]: b for b in gpu.run.tables["breakdown"] if b["step"] == payload["step"]}
    for r in ranks:
        row = rows[int(r["name"])]
        compute = next(lane for lane in r["lanes"] if lane["name"] == "compute")
        assert sum(compute["all"][2]) == row["compute_only_ns"] + row["overlapped_ns"]
        assert r["end"] - r["start"] == row["window_ns"]
        assert all(len(set(map(len, lane["all"]))) == 1 for lane in r["lanes"])


def test_every_term_is_defined_and_ids_are_unique(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    wanted = {link[1:] for link in page.links if link.startswith("#")}
    assert wanted <= set(page.ids)
    assert len([w for w in wanted if w.startswith("def-")]) > 40
    assert all(link.startswith("#") for link in page.links)


def test_the_policy_allows_only_the_pages_own_scripts(text: str, page: Page) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    said = {p.split(" ")[0]: p.split(" ")[1:] for p in policy[1].split("; ")}
    assert said["default-src"] == ["'none'"]
    assert "unsafe-eval" not in policy[1]
    own = [body for attrs, body in page.scripts if attrs.get("type") != "application/json"]
    hashes = ["'sha256-" + base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() + "'" for s in own]
    assert said["script-src"] == hashes
    assert len(own) == 2
    assert not [a for a in page.attributes if a[1].startswith("on") or a[1] in ("src", "srcset")]


def test_the_page_is_small_and_the_same_every_time(text: str, gpu: Any, tmp_path: Path) -> None:
    assert len(text) < 3_000_000
    again = gpu.report(tmp_path / "again.html").read_text("utf-8")
    names = [re.sub(r'"p\d+"', '"p"', t) for t in (text, again)]  # Bokeh numbers its models through the process
    assert names[0] == names[1]


@pytest.mark.parametrize("sample", ["gloo-fsdp2", "gpu-tp2-pp2-dp2/rank3.json.gz"])
def test_what_is_missing_says_why(sample: str, tmp_path: Path) -> None:
    found = Page(tk.analyze(SAMPLES / sample, workers=1).report(tmp_path / "r.html").read_text("utf-8"))
    charts = found.block("charts")
    assert ("pipeline" in charts) == (sample != "gloo-fsdp2" and "pipeline" in found.block("payloads"))
    assert {"breakdown-rank", "strategies", "timeline"} <= set(charts)
    if "rank3" in sample:
        assert "blame" not in charts


def test_a_dataset_of_an_older_version_has_a_page(tmp_path: Path) -> None:
    old = tk.read(Path(__file__).parent / "dataset-1.0")
    text = old.report(tmp_path / "r.html").read_text("utf-8")
    assert "No critical path: an older dataset" in text
    assert {"breakdown-rank", "strategies", "timeline"} <= set(Page(text).block("charts"))


@pytest.mark.shared
def test_operation_tables_and_hangs_have_parts_of_their_own(shared: Path, tmp_path: Path) -> None:
    table = shared / "corpus" / "ByteDance-Seed+StragglerAnalysis"
    text = tk.analyze(table, workers=1).report(tmp_path / "r.html").read_text("utf-8")
    found = Page(text)
    assert "stragglers" in found.ids
    assert "slowdown" in text
    assert found.block("tracekit-data")["tables"]["stragglers"]["rows"]
    dumps = shared / "corpus" / "NVIDIA+nvidia-resiliency-ext" / "fr_gpu_error_1st"
    result = tk.analyze(dumps, workers=1)
    text = result.report(tmp_path / "h.html").read_text("utf-8")
    assert "hang" in Page(text).ids
    assert html.escape(result.run.hang["verdict"]) in text
    assert "breakdown-rank" not in Page(text).block("charts")


def test_without_detail_the_timeline_says_so(tmp_path: Path) -> None:
    result = tk.analyze(SAMPLES / "gloo-fsdp2", workers=1, detail=False)
    text = result.report(tmp_path / "r.html").read_text("utf-8")
    assert "No device activity is kept" in text
    assert "timeline" not in Page(text).block("charts")


def test_a_recording_without_anything_has_a_page(tmp_path: Path) -> None:
    empty = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": []}
    empty["traceEvents"].append(
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    )
    (tmp_path / "t.json").write_text(json.dumps(empty))
    text = tk.analyze(tmp_path / "t.json", workers=1).report(tmp_path / "r.html").read_text("utf-8")
    assert text.count('class="reason"') >= 5


def test_the_step_can_be_chosen(gpu: Any, tmp_path: Path) -> None:
    found = Page(gpu.report(tmp_path / "r.html", step=20).read_text("utf-8"))
    assert found.block("payloads")["timeline"]["step"] == 20
    with pytest.raises(UsageError, match=r"no such step; the recording has 20, 21, 22"):
        gpu.report(tmp_path / "r.html", step=7)


def test_other_files_are_not_replaced(gpu: Any, tmp_path: Path) -> None:
    target = tmp_path / "notes.html"
    target.write_text("mine")
    with pytest.raises(UsageError, match="did not write"):
        gpu.report(target)
    assert target.read_text() == "mine"
    assert gpu.report(target, overwrite=True) == gpu.report(target) == target
    with pytest.raises(UsageError, match="is a folder"):
        gpu.report(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.html"]


def test_the_command_reads_a_dataset(gpu: Any, tmp_path: Path) -> None:
    gpu.write(tmp_path / "out")
    done = CliRunner().invoke(
        cli, ["report", str(tmp_path / "out"), "-o", str(tmp_path / "r.html"), "--title", "a <b>"]
    )
    assert done.exit_code == 0, done.output
    assert done.output.startswith("wrote ")
    assert "<title>a &lt;b&gt;</title>" in (tmp_path / "r.html").read_text("utf-8")


def test_without_the_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "holoviews" else real(name, *a))
    done = CliRunner().invoke(cli, ["report", str(tmp_path / "nothing"), "-o", str(tmp_path / "r.html")])
    assert isinstance(done.exception, UsageError)
    assert "pip install 'tracekit[plots]' (holoviews not found)" in str(done.exception)
    assert done.exception.exit_code == 2


def test_text_is_escaped() -> None:
    from tracekit.output.html.markup import esc
    from tracekit.output.html.page import to_json

    assert esc('<a href="x">\'&\u202e\x00</a>') == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;??&lt;/a&gt;"
    attack = '</script><!--<script>\u2028&"'
    written = to_json({"name": attack})
    assert not set("<>&") & set(written)
    assert written.isascii()
    assert json.loads(written) == {"name": attack}


def test_exposed_is_what_remains_of_intervals() -> None:
    """Against counting ns one by one."""
    import numpy as np

    from tracekit.analysis.intervals import union
    from tracekit.output.html.timeline import without

    random = np.random.default_rng(3)
    for _ in range(200):
        sets = []
        for _ in range(2):
            starts = random.integers(0, 60, random.integers(0, 8))
            sets.append(union(starts, starts + random.integers(0, 12, len(starts))))
        inside = [{t for a, z in zip(*s, strict=True) for t in range(a, z)} for s in sets]
        found = without(*sets)
        assert {t for a, z in zip(*found, strict=True) for t in range(a, z)} == inside[0] - inside[1]


def test_one_cost_is_on_one_card(page: Page, gpu: Any) -> None:
    """The straggler that a finding names is what a replay without stragglers saves."""
    finding = next(f for f in gpu.run.tables["findings"] if f["code"] == "straggler-on-path")
    replay = [
        w["saved_ns"]
        for w in gpu.run.tables["what_if"]
        if (w["what"], w["basis"]) == ("no-stragglers", "critical-path")
    ]
    assert finding["avoidable_ns"] in page.values["verdict"]
    assert sum(replay) / len(replay) not in page.values["verdict"]


def test_measured_times_of_findings_are_in_ms(text: str, gpu: Any) -> None:
    finding = next(f for f in gpu.run.tables["findings"] if f["code"] == "straggler-on-path")
    assert finding["unit"] == "ns"
    part = text[text.index('<section id="findings"') :]
    cell = part[part.index("<dt>measured</dt>") :].split("</dd>")[0]
    shown = [float(v) for v in re.findall(r'<data value="([^"]+)"', cell)]
    assert shown == [finding["measured"], finding["expected"]]
    assert re.sub(r"<[^>]+>", "", cell).endswith(f"{finding['expected'] / 1e6:.1f} ms")


def test_a_call_of_several_kernels_is_drawn_as_its_kernels() -> None:
    """Two kernels of one call with 40 ns between them, 10 of the second under compute; and an older dataset's call."""
    import numpy as np

    from tracekit.output.html import timeline

    data = {
        "ts_ns": np.array([100, 150, 170]), "dur_ns": np.array([10, 30, 50]), "call_id": np.array([7, 7, -1]),
        "kind": np.array(["comm", "comm", "compute"], object),
    }  # fmt: skip
    calls = {
        "ts_ns": np.array([100]), "dur_ns": np.array([80]), "strategy": np.array(["tp"], object), "id": np.array([7])
    }  # fmt: skip
    lanes = {lane["name"]: lane for lane in timeline._lanes(data, calls, 0, 1000, 1)}
    assert lanes["tp"]["all"] == [[100, 40], [10, 30], [10, 30], [1, 1]]
    assert lanes["tp"]["exposed"] == [[100, 40], [10, 20], [10, 20], [1, 1]]
    older = {lane["name"]: lane for lane in timeline._lanes(data | {"call_id": np.full(3, -1)}, calls, 0, 1000, 1)}
    assert older["tp"]["all"] == [[100], [80], [80], [1]]


@pytest.mark.shared
def test_an_operation_table_has_its_name_and_what_stragglers_cost(shared: Path, tmp_path: Path) -> None:
    result = tk.analyze(shared / "corpus" / "ByteDance-Seed+StragglerAnalysis" / "straggler_pp" / "trace-ST.parquet")
    text = result.report(tmp_path / "r.html").read_text("utf-8")
    job = next(r for r in result.run.tables["stragglers"] if r["scope"] == "job")
    assert Page(text).values["verdict"] == [job["replayed_ns"] - job["ideal_ns"]]
    assert "<title>trace-ST.parquet</title>" in text
    assert f"{100 * (1 - job['ideal_ns'] / job['replayed_ns']):.1f} % of the step" in text


def test_a_folder_of_runs_names_them_and_a_dataset_without_its_account_says_so(tmp_path: Path) -> None:
    import shutil

    old = Path(__file__).parent / "dataset-1.0"
    shutil.copytree(old, tmp_path / "run=one")
    done = CliRunner().invoke(cli, ["report", str(tmp_path), "-o", str(tmp_path / "r.html")])
    assert isinstance(done.exception, UnusableInput)
    assert f"name one of them, as {tmp_path / 'run=one'}" in str(done.exception)
    shutil.rmtree(tmp_path / "run=one" / "breakdown")
    text = tk.read(tmp_path / "run=one").report(tmp_path / "r.html").read_text("utf-8")
    assert "The steps have no account (table `breakdown`)" in html.unescape(text)
