"""One run read back from every output: Markdown, JSON, Parquet, Perfetto and the HTML page say the same numbers."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chrome_reader import Trace, read, union

import tracekit as tk
from tracekit.output.text import ms

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
Numbers = dict[tuple[Any, str], dict[str, int]]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("outputs")
    result = tk.analyze(ROOT / "sample_traces" / "gpu-tp2-pp2-dp2", workers=1)
    result.write(folder / "out")
    result.perfetto(folder / "t.json.gz")
    pytest.importorskip("holoviews", reason="needs the extra `plots`")
    result.report(folder / "page.html")
    return {
        "json": json.loads(result.to_json()), "markdown": result.to_markdown(), "parquet": folder / "out",
        "perfetto": read(folder / "t.json.gz"), "html": (folder / "page.html").read_text("utf-8"),
    }  # fmt: skip


def of_json(document: dict[str, Any]) -> Numbers:
    return {
        (t["rank"], s): {k: row[k] for k in ("exposed_ns", "total_ns", "attributed_ns", "count")}
        for t in document["totals"] for s, row in t["by_strategy"].items()
    }  # fmt: skip


def of_parquet(folder: Path) -> Numbers:
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "by_strategy" / "part-0.parquet").to_pylist()
    return {
        (r["rank"], r["strategy"]): {k: r[k] for k in ("exposed_ns", "total_ns", "attributed_ns", "count")}
        for r in rows
    }  # fmt: skip


def of_perfetto(trace: Trace) -> Numbers:
    """Exposed time is the union of exposed slices; the activities of these calls have no gaps, so total is theirs."""
    out: Numbers = {}
    for process, track in {(s.process, re.sub(r" \(\d+\)$", "", s.track)) for s in trace.slices}:
        mine = trace.on(process, track)
        calls = [s for s in mine if s.cat == "communication"]
        if calls:
            out[int(process.removeprefix("rank ")), track] = {
                "exposed_ns": union([(s.start, s.end) for s in mine if s.cat == "exposed"]),
                "total_ns": union([(s.start, s.end) for s in calls]),
            }
    return out


def of_markdown(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of the table by strategy, as printed."""
    part = text[text.index("communication by strategy") :]
    lines = [line for line in part.split("\n\n")[1].splitlines() if line.startswith("|")]
    head = [c.strip() for c in lines[0].strip("|").split("|")]
    for line in lines[2:]:
        cells = [c.strip() for c in line.strip("|").split("|")]
        yield cells[0], dict(zip(head, cells, strict=True))


def test_parquet_and_json(outputs: dict[str, Any]) -> None:
    assert of_parquet(outputs["parquet"]) == of_json(outputs["json"])


def test_perfetto_and_json(outputs: dict[str, Any]) -> None:
    known, drawn = of_json(outputs["json"]), of_perfetto(outputs["perfetto"])
    assert drawn == {k: {n: v[n] for n in ("exposed_ns", "total_ns")} for k, v in known.items()}


def test_markdown_and_json(outputs: dict[str, Any]) -> None:
    known = of_json(outputs["json"])
    ranks = len(outputs["json"]["totals"])
    seen = set()
    for strategy, cells in of_markdown(outputs["markdown"]):
        rows = [v for (_, s), v in known.items() if s == strategy]
        seen.add(strategy)
        assert cells["calls"] == f"{sum(r['count'] for r in rows):,}"
        for column, name in (("total", "total_ns"), ("exposed", "exposed_ns"), ("attributed", "attributed_ns")):
            assert cells[column] == ms(sum(r[name] for r in rows) / ranks)
    assert seen == {s for _, s in known}


def cells_of(page: str, caption: str) -> list[list[tuple[str, str | None]]]:
    """(text, exact value) of each cell of the table with this caption, row by row."""
    tables = [t for t in re.findall(r"<figure.*?</figure>|<details.*?</details>", page, re.DOTALL) if caption in t]
    assert tables, caption
    rows = re.findall(r"<tr.*?</tr>", tables[-1], re.DOTALL)
    return [
        [
            (html.unescape(re.sub(r"<[^>]+>", "", c)).strip(), (re.findall(r'<data value="([^"]+)"', c) or [None])[0])
            for c in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in rows
    ]


def test_page_and_json(outputs: dict[str, Any]) -> None:
    """What the page prints for each strategy and phase is the mean of JSON's exact sums, and carries it."""
    exposure, steps = outputs["json"]["exposure"], outputs["json"]["steps"]
    whole = {(s["rank"], s["step"]) for s in steps if s["complete"]}
    head, *rows = cells_of(outputs["html"], "communication by strategy and phase, ms, mean of a rank and step")
    at = {name: i for i, (name, _) in enumerate(head)}
    seen = set()
    for row in rows:
        key = row[0][0], None if row[1][0] == "–" else row[1][0]
        own = [
            e for e in exposure if (e["strategy"], e["phase"]) == key and (e["rank"], e["step"]) in whole
        ]  # fmt: skip
        seen.add(key)
        for column, name in (("exposed", "attributed_ns"), ("waiting", "attributed_wait_ns"), ("hidden", "hidden_ns"),
                             ("avoidable", "avoidable_ns"), ("unknown", "unknown_ns")):  # fmt: skip
            known = [e[name] for e in own if e[name] is not None]
            text, exact = row[at[column]]
            assert exact is not None, (key, column)
            assert float(exact) == pytest.approx(sum(known) / len(whole)), (key, column)
            assert text == ms(float(exact)), (key, column)
    assert seen == {(e["strategy"], e["phase"]) for e in exposure}


def test_page_and_markdown(outputs: dict[str, Any]) -> None:
    """Verdict and the table of strategies: the same text on both."""
    _, *rows = cells_of(outputs["html"], "communication by strategy (ms, mean of a rank, whole recording)")
    shown = {row[0][0]: [text for text, _ in row] for row in rows if row}
    printed = {name: list(cells.values()) for name, cells in of_markdown(outputs["markdown"])}
    assert shown == printed
    verdict = re.search(r'<p class="verdict">(.*?)</p>', outputs["html"], re.DOTALL)
    assert verdict
    plain = outputs["markdown"].replace("\\", "").replace("*", "")
    assert " ".join(html.unescape(verdict[1]).split()) in " ".join(plain.split())


def test_the_dataset_says_all_of_it_again(outputs: dict[str, Any]) -> None:
    again = tk.read(outputs["parquet"])
    assert again.to_markdown() == outputs["markdown"]
    document = json.loads(again.to_json())
    for name in ("totals", "breakdown", "exposure", "sites", "steps", "bubble", "matches", "findings"):
        assert document[name] == outputs["json"][name], name
