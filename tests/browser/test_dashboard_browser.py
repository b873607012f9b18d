"""The dashboard in a real browser: it draws, asks for nothing but its server, and the address says where the reader is."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pytest

import tracekit as tk

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
DEEP = (
    "const deep = (r) => [...r.querySelectorAll('*')].flatMap((e) => [e, ...(e.shadowRoot ? deep(e.shadowRoot) : [])]);"
)
TEXT = (
    DEEP
    + """
  const words = (n) => n.nodeType === 3 ? n.data : /^(STYLE|SCRIPT)$/.test(n.nodeName) ? '' :
    [...(n.shadowRoot ?? n).childNodes].map(words).join(' ');
  return words(document.body);
"""
)
CANVASES = (
    DEEP
    + """
  return deep(document).filter((e) => e.tagName === 'CANVAS' && e.width && e.height).filter((c) => {
    const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    for (let i = 3; i < data.length; i += 4) if (data[i]) return true;
    return false;
  }).length;
"""
)
CLICK = DEEP + "deep(document).find((e) => e.tagName === 'A' && e.textContent.trim() === arguments[0]).click();"
CHOOSE = (
    DEEP
    + """
  const label = deep(document).find((e) => e.tagName === 'LABEL' && e.textContent.trim() === arguments[0]);
  const select = label.parentNode.querySelector('select');
  const option = [...select.options].find((o) => o.text === arguments[1]);
  select.value = option.value;
  select.dispatchEvent(new Event('change'));
"""
)
SELECTED = (
    DEEP
    + """
  return Object.fromEntries(deep(document).filter((e) => e.tagName === 'LABEL').map((l) => {
    const select = l.parentNode.querySelector('select');
    return [l.textContent.trim(), select.options[select.selectedIndex]?.text];
  }));
"""
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, one of them with a name that must not become markup."""
    pytest.importorskip("panel", reason="needs the extra `dashboard`")
    folder = tmp_path_factory.mktemp("dashboard") / "runs"
    gpu = tk.analyze(SAMPLES / "gpu-tp2-pp2-dp2", workers=1)
    gpu.append(folder, "gpu")
    tk.analyze(SAMPLES / "gloo-fsdp2", workers=1).append(folder, "fsdp")
    gpu.append(folder, "again")
    (folder / "run=again").rename(folder / "run=<img src=x onerror=alert(1)>")
    return folder


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    command = [
        sys.executable,
        "-c",
        "from tracekit.commands import main; main()",
        "dashboard",
        str(root),
        "--no-show",
        "--port",
        str(port),
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            assert line == f"serving http://127.0.0.1:{port}/ (stop with Ctrl-C)\n", line
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()


def arrive(browser: Any, url: str, words: str, **size: Any) -> None:
    """Open a place and wait until it shows these words."""
    browser.open(url, **size)
    wait_for(browser, words)


def wait_for(browser: Any, words: str) -> None:
    browser.wait("return document.body.dataset.ready")
    end = time.monotonic() + 120
    while words not in browser.js(TEXT):
        assert time.monotonic() < end, f"never shown: {words}\n{browser.errors()}\n{browser.js(TEXT)[:2000]}"
        time.sleep(0.05)


def clean(browser: Any, address: str) -> None:
    """No errors, no request to another server, nothing wider than the window."""
    assert browser.errors() == []
    assert {urlparse(u).netloc for u in browser.requests()} == {urlparse(address).netloc}
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_level_draws_without_errors_or_other_servers(browser: Any, address: str, width: int, dark: bool) -> None:
    arrive(browser, address, "Means of a rank and complete step;", width=width, dark=dark)
    browser.wait(CANVASES.replace("}).length;", "}).length >= 3;"))
    clean(browser, address)
    for place, words in (
        ("?run=gpu", "Findings"), ("?run=gpu&step=21", "Step 21"), ("?run=gpu&rank=3", "Communication calls"),
        ("?run=gpu&step=21&rank=3&strategy=tp", "Communication calls"), ("?run=gpu&rank=3&call=17", "As recorded"),
        ("?run=fsdp", "Ranks"),
    ):  # fmt: skip
        arrive(browser, address + place, words, width=width, dark=dark)
        clean(browser, address)


def test_from_the_list_to_a_call_and_back(browser: Any, address: str) -> None:
    arrive(browser, address, "Means of a rank and complete step;")
    for link, words, query in (
        ("gpu", "Run gpu", "?run=gpu"), ("ProfilerStep#21", "Step 21", "?run=gpu&step=21"),
        ("3", "Rank 3, step 21", "?run=gpu&step=21&rank=3"),
    ):  # fmt: skip
        browser.js(CLICK, link)
        wait_for(browser, words)
        assert browser.js("return location.search") == query
    browser.js("history.back()")
    wait_for(browser, "Where its time goes".lower())
    browser.wait("return location.search === '?run=gpu&step=21'")
    wait_for(browser, "Ranks")
    browser.js("history.forward()")
    wait_for(browser, "Rank 3, step 21")
    assert browser.errors() == []


def test_filters_are_kept_in_the_address_and_restored(browser: Any, address: str) -> None:
    arrive(browser, address + "?run=gpu&rank=3", "Communication calls")
    browser.js(CHOOSE, "strategy", "tp")
    browser.wait("return location.search === '?run=gpu&rank=3&strategy=tp'")
    wait_for(browser, "calls of")
    browser.js(CHOOSE, "step", "22")
    browser.wait("return new URLSearchParams(location.search).get('step') === '22'")
    wait_for(browser, "Rank 3, step 22")
    found = browser.js("return location.href")
    arrive(browser, found, "Rank 3, step 22")
    assert browser.js(SELECTED) == {"run": "gpu", "step": "22", "rank": "3", "strategy": "tp"}


def test_names_do_not_become_markup(browser: Any, address: str) -> None:
    arrive(browser, address, "<img src=x onerror=alert(1)>")
    browser.js(CLICK, "<img src=x onerror=alert(1)>")
    wait_for(browser, "Run <img src=x onerror=alert(1)>")
    assert browser.js(DEEP + "return deep(document).filter((e) => e.tagName === 'IMG').length") == 0
    clean(browser, address)


def test_nonsense_in_the_address_is_told(browser: Any, address: str) -> None:
    arrive(browser, address + "?run=nope&step=x&rank=-", "No such run here")
    arrive(browser, address + "?run=gpu&rank=3&call=999999", "no call 999999")
    arrive(browser, address + "?run=gpu&step=7", "no steps here")
    assert browser.errors() == []


def test_an_address_full_of_nonsense_shows_a_place(browser: Any, address: str) -> None:
    for search, words in (
        ("?run=%00%ff%ed%a0%80&rank=%00", "No such run here"), ("?run=" + "x" * 8000, "No such run here"),
        ("?run=gpu&step=-9&rank=-7&call=-1&page=-3", "no call -1"), ("?%%%&&&=", "Means of a rank"),
        ("?run=gpu&rank=3&page=99999999&strategy=%3C/script%3E", "no such call"),
        ("?" + "&".join(f"a{i}=1" for i in range(999)), "Means of a rank"),
    ):  # fmt: skip
        arrive(browser, address + search, words)
        clean(browser, address)


def test_a_run_that_goes_while_it_is_shown_is_told(browser: Any, address: str, root: Path) -> None:
    shutil.copytree(root / "run=fsdp", root / "run=brief")
    arrive(browser, address + "?run=brief", "Run brief")
    shutil.rmtree(root / "run=brief")
    browser.js(CHOOSE, "rank", "1")
    wait_for(browser, "No such run here")
    assert browser.errors() == []


def test_a_broken_run_is_named_beside_the_others(browser: Any, address: str, root: Path) -> None:
    shutil.copytree(root / "run=fsdp", root / "run=broken")
    (root / "run=broken" / "manifest.json").write_text("</script><b>{")
    arrive(browser, address, "run=broken/manifest.json: cannot be read", width=360)
    assert "Means of a rank and complete step" in browser.js(TEXT)
    clean(browser, address)
    shutil.rmtree(root / "run=broken")


def test_two_readers_at_once_see_their_own_places(browser: Any, address: str) -> None:
    arrive(browser, address + "?run=gpu", "Run gpu")
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    arrive(browser, address + "?run=fsdp", "Run fsdp")
    second = browser.driver.current_window_handle
    browser.driver.switch_to.window(first)
    browser.js(CHOOSE, "step", "21")
    wait_for(browser, "Step 21")
    browser.driver.switch_to.window(second)
    assert "Run fsdp" in browser.js(TEXT)
    assert browser.js("return location.search") == "?run=fsdp"
    browser.driver.close()
    browser.driver.switch_to.window(first)
    assert browser.errors() == []


def test_another_sites_page_cannot_connect(address: str) -> None:
    """The data come over a socket that only pages of this machine may open."""

    def answer(origin: str) -> int:
        where = urlparse(address)
        connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
        headers = {
            "Origin": origin, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }  # fmt: skip
        connection.request("GET", "/ws", headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    assert answer("http://evil.example") == 403
    assert answer(address.rstrip("/")) != 403
