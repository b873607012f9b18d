"""The report in a real browser: it draws, asks for nothing, fits a phone, and its choices work."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import tracekit as tk

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
ALL_DRAWN = """
  const charts = [...document.querySelectorAll('.chart')].filter((c) => c.offsetParent);
  const next = charts.find((c) => c.dataset.state !== 'drawn');
  if (next) next.scrollIntoView({block: 'center', behavior: 'instant'});
  return charts.length > 0 && !next;
"""
EVERY_TAB = """
  document.querySelectorAll('[role=tab]').forEach((t) => t.click());
  return document.querySelectorAll('[role=tab]').length;
"""
PAINTED = """
  const shadow = (root) => [...root.querySelectorAll('*')].flatMap((e) => [e, ...(e.shadowRoot ? shadow(e.shadowRoot) : [])]);
  return shadow(document.getElementById(arguments[0])).filter((e) => e.tagName === 'CANVAS').some((c) => {
    const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    for (let i = 3; i < data.length; i += 4) if (data[i]) return true;
    return false;
  });
"""


@pytest.fixture(scope="module")
def gpu() -> Any:
    pytest.importorskip("holoviews", reason="needs the extra `plots`")
    return tk.analyze(SAMPLES / "gpu-tp2-pp2-dp2", workers=1)


@pytest.fixture(scope="module")
def page(gpu: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(gpu.report(tmp_path_factory.mktemp("page") / "report.html"))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 360])
def test_everything_is_drawn_without_errors_or_network(browser: Any, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    browser.wait(ALL_DRAWN)
    assert browser.js(EVERY_TAB) > 4
    browser.wait(ALL_DRAWN)
    names = browser.js("return [...document.querySelectorAll('.chart')].map((c) => c.dataset.chart)")
    assert {"breakdown-rank", "strategies", "theory", "pipeline", "timeline", "critical"} <= set(names)
    for name in browser.js(
        "return [...document.querySelectorAll('.chart')].filter((c) => c.offsetParent).map((c) => c.id)"
    ):
        assert browser.js(PAINTED, name), name
    assert browser.errors() == []
    assert browser.requests() == []
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


def test_the_toggle_repaints_the_page(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.wait(ALL_DRAWN)
    ground = "return getComputedStyle(document.body).backgroundColor"
    label = (
        "return [...Bokeh.documents[0]._all_models.values()].find((m) => m.type === 'LinearAxis').axis_label_text_color"
    )
    before = browser.js(ground), browser.js(label)
    browser.js("document.getElementById('theme').click()")
    after = browser.js(ground), browser.js(label)
    assert before[0] == "rgb(255, 255, 255)"
    assert after[0] == "rgb(21, 24, 29)"
    assert before[1] != after[1]


def test_arrow_keys_change_tabs(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.wait("return document.body.dataset.ready")
    from selenium.webdriver.common.keys import Keys

    browser.js("document.getElementById('tab-breakdown-0').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert browser.js("return document.activeElement.id") == "tab-breakdown-1"
    assert browser.js("return document.getElementById('pane-breakdown-0').hidden")
    assert not browser.js("return document.getElementById('pane-breakdown-1').hidden")


def test_ranks_of_the_timeline_can_be_chosen_and_add_up(browser: Any, page: Path, gpu: Any) -> None:
    browser.open(page)
    browser.wait(ALL_DRAWN)
    choose = """
      const [select, value] = [document.querySelector(`[data-rank="${arguments[0]}"]`), arguments[1]];
      select.value = value; select.dispatchEvent(new Event('change'));
    """
    browser.js(choose, 0, "5")
    browser.js(choose, 1, "2")
    rows = browser.js(
        "return [...document.querySelectorAll('[data-note=timeline] tbody tr')]"
        ".map((r) => [r.cells[0].textContent, r.cells[1].textContent, +r.dataset.busy, +r.dataset.exposed])"
    )
    assert {r[0] for r in rows} == {"5", "2"}
    for rank in (5, 2):
        own = [e for e in gpu.run.tables["exposure"] if (e["rank"], e["step"]) == (rank, 21)]
        for strategy in {e["strategy"] for e in own}:
            drawn = next(r for r in rows if r[:2] == [str(rank), strategy])
            phases = [e for e in own if e["strategy"] == strategy]
            # Phases of one strategy may overlap each other; the sample's do not.
            assert drawn[2:] == [sum(e["total_ns"] for e in phases), sum(e["exposed_ns"] for e in phases)], strategy


def test_pipelines_and_kinds_of_calls_can_be_chosen(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.wait(ALL_DRAWN)
    for name, layer in (("pipeline", "work"), ("theory", "groups")):
        field = "left" if name == "pipeline" else "y"
        values = f"""
          for (const doc of Bokeh.documents) {{ const s = doc.get_model_by_name('{name}:{layer}'); if (s) return [...s.data['{field}']]; }}
        """
        before = browser.js(values)
        browser.js(
            f"const s = document.querySelector('[data-pick={name}]'); s.selectedIndex = 1; s.dispatchEvent(new Event('change'));"
        )
        assert browser.js(values) != before, name


def test_zoom_has_buttons(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.wait(ALL_DRAWN)
    width = """
      for (const doc of Bokeh.documents) { const r = doc.get_model_by_name('timeline:x'); if (r) return r.end - r.start; }
    """
    whole = browser.js(width)
    press = "document.querySelector('[data-of=timeline][data-zoom=' + arguments[0] + ']').click()"
    browser.js(press, "in")
    assert browser.js(width) == pytest.approx(whole / 2)
    browser.js(press, "right")
    browser.js(press, "all")
    assert browser.js(width) == pytest.approx(whole)


def test_findings_are_filtered(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.wait("return document.body.dataset.ready")
    shown = "return [...document.querySelectorAll('li[data-severity]')].filter((c) => !c.hidden).length"
    assert browser.js(shown) > 0
    browser.js(
        "const s = document.querySelector('[data-find]'); s.value = 'no such text'; s.dispatchEvent(new Event('input'))"
    )
    assert browser.js(shown) == 0
    assert not browser.js("return document.querySelector('[data-none=findings]').hidden")


def test_terms_lead_to_their_definition(browser: Any, page: Path) -> None:
    browser.open(page)
    loose = "return [...document.querySelectorAll('a[href^=\"#\"]')].map((a) => a.hash.slice(1)).filter((id) => !document.getElementById(id))"
    assert browser.js(loose) == []
    assert browser.js("return document.querySelectorAll('a.term').length") > 40


HOSTILE = '</script><script>window.owned=1</script><img src="https://example.invalid/x" onerror="window.owned=1">\'"`${1}\u202e\x00'


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of the sample whose kernels, scopes, device and files have names that attack."""
    pytest.importorskip("holoviews", reason="needs the extra `plots`")
    folder = tmp_path_factory.mktemp("hostile")
    for rank in (0, 1):
        text = gzip.decompress((SAMPLES / "gpu-tp2-pp2-dp2" / f"rank{rank}.json.gz").read_bytes()).decode()
        trace = json.loads(text)
        for event in trace["traceEvents"]:
            if event.get("cat") in ("kernel", "cpu_op", "user_annotation") and "ProfilerStep" not in event["name"]:
                event["name"] += HOSTILE
        for device in trace["deviceProperties"]:
            device["name"] += HOSTILE
        (folder / f'rank{rank}"><img src=x onerror=owned=1>.json').write_text(json.dumps(trace))
    return Path(tk.analyze(folder, workers=1).report(folder / "page.html"))


def test_names_from_traces_are_text(browser: Any, hostile: Path) -> None:
    browser.open(hostile)
    browser.wait(ALL_DRAWN)
    browser.js(EVERY_TAB)
    browser.wait(ALL_DRAWN)
    assert browser.js("return window.owned") is None
    assert browser.js("return document.querySelectorAll('img, iframe, object').length") == 0
    assert browser.js("return document.querySelectorAll('script').length") == 6
    assert "window.owned=1" in browser.js("return document.body.innerText")
    assert browser.errors() == []
    assert browser.requests() == []


def test_print_shows_what_is_folded(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.wait(ALL_DRAWN)
    closed = "return document.querySelectorAll('details:not([open])').length"
    before = browser.js(closed)
    assert before > 5
    browser.js("dispatchEvent(new Event('beforeprint'))")
    assert browser.js(closed) == 0
    assert (
        0 < float(browser.js("return getComputedStyle(document.documentElement).getPropertyValue('--print-zoom')")) < 1
    )
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert browser.js(closed) == before
    pdf = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"]
    assert len(pdf) > 100_000


LABELS = """
  const shadow = (root) => [...root.querySelectorAll('*')].flatMap((e) => [e, ...(e.shadowRoot ? shadow(e.shadowRoot) : [])]);
  return shadow(document.getElementById('chart-breakdown-rank')).filter((e) => e.tagName === 'CANVAS').map((c) => c.toDataURL());
"""


def test_paper_is_light(browser: Any, page: Path) -> None:
    """A dark page prints the pictures of the light one, to the pixel, and is dark again afterwards."""
    browser.open(page)
    browser.wait(ALL_DRAWN)
    light = browser.js(LABELS)
    browser.js("document.getElementById('theme').click()")
    # One script: what is printed is what stands there when the event returns.
    on_paper = browser.js("dispatchEvent(new Event('beforeprint'));" + LABELS)
    assert on_paper == light
    assert browser.js("dispatchEvent(new Event('afterprint'));" + LABELS) != light
    assert browser.js("return document.documentElement.dataset.theme") == "dark"
