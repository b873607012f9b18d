"""A real browser, headless: skipped with a reason where none is installed, required where TRACEKIT_BROWSER says so."""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--disable-extensions",
)  # fmt: skip
OWN = ("data:", "blob:", "chrome:", "devtools:", "about:")
"""Addresses that are no network."""


@dataclass
class Browser:
    """One page at a time, with what it logged and asked for since it was opened."""

    driver: Any
    url: str = ""
    logged: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, url: str | Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page (a file's path, or an address) at this size."""
        self.url = url if isinstance(url, str) else url.resolve().as_uri()
        self.driver.get("about:blank")
        self.size(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self._drain()
        self.logged, self.asked = [], []
        self.driver.get(self.url)

    def size(self, width: int, height: int = 900) -> None:
        """Size of the window inside."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def js(self, script: str, *arguments: Any) -> Any:
        """Value of a script's `return`."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, seconds: float = 120) -> Any:
        """The first true value of a script's `return`; AssertionError after so long, with what the page logged."""
        end = time.monotonic() + seconds
        while not (value := self.js(script)):
            assert time.monotonic() < end, f"never true: {script}\n{self.errors()}"
            time.sleep(0.05)
        return value

    def errors(self) -> list[str]:
        """What the page logged as a warning or an error."""
        self._drain()
        return [e["message"] for e in self.logged if e["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses the page asked for besides its own."""
        self._drain()
        return [u for u in self.asked if u != self.url and not u.startswith(OWN)]

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        height = self.js("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": self.js("return innerWidth"), "height": height, "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(shot["data"]))

    def _drain(self) -> None:
        self.logged += self.driver.get_log("browser")
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])


def _missing(what: str) -> None:
    if os.environ.get("TRACEKIT_BROWSER") == "required":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def _driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A started browser with an empty profile."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    chromedriver = shutil.which("chromedriver")
    if not (chromium and chromedriver):
        _missing("no browser: needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra `dev`)")
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(chromium)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=Service(str(chromedriver)))
    except WebDriverException as e:
        _missing(f"the browser does not start: {e.msg}")
    yield driver
    driver.quit()


@pytest.fixture
def browser(_driver: Any) -> Browser:
    """A browser that forgot the page before."""
    return Browser(_driver)
