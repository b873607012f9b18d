"""The pages of docs/ as a site, built as `make docs` does and opened as files in a real browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(p.stem for p in DOCS.glob("*.md"))
SEEN = """
  const visible = (e) => e?.checkVisibility() && e.getBoundingClientRect().width > 0 && e.getBoundingClientRect().right > 0;
  return {
    titles: [...document.querySelectorAll('article h1')].filter(visible).length,
    empty: [...document.querySelectorAll('article h1, article h2, article h3')].filter((h) => !visible(h) || !h.innerText.trim()).length,
    menu: [...document.querySelectorAll('.sidebar-tree a.reference')].map((a) => new URL(a.href).pathname.split('/').pop()),
    open: visible(document.querySelector('.sidebar-tree')),
    wide: document.documentElement.scrollWidth - innerWidth,
    cut: [...document.querySelectorAll('article table, article pre, article img')].filter(visible).filter((e) => {
      const right = document.querySelector('article').getBoundingClientRect().right + 1;
      if (e.getBoundingClientRect().right <= right && e.scrollWidth <= e.clientWidth + 1) return false;
      for (let p = e; p && p.tagName !== 'ARTICLE'; p = p.parentElement)
        if (/auto|scroll/.test(getComputedStyle(p).overflowX) && p.getBoundingClientRect().right <= right) return false;
      return true;
    }).length,
    unseen: [...document.images].filter((i) => i.checkVisibility() && !i.naturalWidth).length,
  };
"""


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        f"{target}.kept",
        str(source),
        str(target),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, without a warning."""
    for name in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(name, reason="needs the extra `docs`")
    target = tmp_path_factory.mktemp("site") / "site"
    done = build(DOCS, target)
    assert (done.returncode, done.stderr) == (0, "")
    return target


def test_a_link_that_leads_nowhere_stops_the_build(site: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("conf.py", "site.css"):
        shutil.copy(DOCS / name, docs)
    (docs / "index.md").write_text("# A\n\n## Do\n\n- [B](b.md)\n")
    (docs / "b.md").write_text("# B\n\n[gone](gone.md), [no such heading](index.md#nowhere)\n")
    done = build(docs, tmp_path / "site")
    assert done.returncode == 1
    assert "gone.md" in done.stderr
    assert "nowhere" in done.stderr


def test_every_page_opens_as_a_file(browser: Any, site: Path) -> None:
    """No message in the console, nothing from the network, the whole menu, nothing wider than the window."""
    assert sorted(p.stem for p in site.glob("*.html")) == sorted([*PAGES, "genindex", "search"])
    for page in PAGES:
        browser.open(site / f"{page}.html", dark=page < "i")
        for width in (1280, 360):
            browser.size(width)
            seen = browser.js(SEEN)
            assert set(seen.pop("menu")) == {f"{p}.html" for p in PAGES if p != "index"}, page
            assert seen.pop("wide") <= 0, (page, width)
            assert seen == {"titles": 1, "empty": 0, "open": width > 1000, "cut": 0, "unseen": 0}, (page, width)
        assert browser.errors() == [], page
        asked = browser.requests()
        assert asked, page
        assert [u for u in asked if not u.startswith(site.as_uri())] == [], page


def test_the_menu_opens_on_a_phone(browser: Any, site: Path) -> None:
    browser.open(site / "index.html", width=360)
    browser.js("document.querySelector('label[for=__navigation]').click()")
    link = "const a = document.querySelector('.sidebar-tree a[href=\"glossary.html\"]');"
    browser.wait(link + "return a.checkVisibility() && a.getBoundingClientRect().left >= 0")
    browser.js(link + "a.click()")
    browser.wait("return location.pathname.endsWith('/glossary.html') && document.querySelector('h1')")


def test_words_are_found_without_network(browser: Any, site: Path) -> None:
    browser.open(f"{(site / 'search.html').as_uri()}?q=busbw")
    found = "return [...document.querySelectorAll('#search-results li a')].map((a) => a.getAttribute('href').split(/[?#]/)[0])"
    assert "glossary.html" in browser.wait(f"const all = (() => {{ {found} }})(); return all.length ? all : null")
    assert browser.errors() == []
    assert [u for u in browser.requests() if not u.startswith("file://")] == []


def test_light_and_dark_are_kept_readable(browser: Any, site: Path) -> None:
    """Text against its ground, by the formula of WCAG 2: at least 4.5."""
    contrast = """
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; } };
      return Math.min(...[...document.querySelectorAll('article p, article td, article th, article a.reference, pre span, .sidebar-tree a')]
        .filter((e) => e.innerText.trim()).map((e) => {
          const [a, b] = [light(getComputedStyle(e).color), light(ground(e))]; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }));
    """
    for dark in (False, True):
        for page in ("index", "diff", "dashboards"):
            browser.open(site / f"{page}.html", dark=dark)
            assert browser.js(contrast) >= 4.5, (page, dark)
