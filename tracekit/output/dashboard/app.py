"""The dashboard as a Panel application: a session a reader, its place in the address, filters as widgets."""

from __future__ import annotations

import logging
import re
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError, UsageError
from tracekit.output import dataset
from tracekit.output.dashboard import panes, store, view
from tracekit.output.dashboard.where import Where, rank_text
from tracekit.output.html import markup as m
from tracekit.output.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracekit.output.dashboard.store import Store
    from tracekit.output.runs import ListedRun

_LOCAL = re.compile(r"""(?:src|href)="(static/[^"]+)\"""")
_ORIGIN = re.compile(r"[\w.*-]+(:(\d{1,5}|\*))?")
MISSING = "the dashboard needs Panel: pip install 'tracekit[dashboard]'"
DEFECT = "This is a defect of tracekit, or of the dataset; the server's standard error has the traceback."
ALL = ""
_log = logging.getLogger(__name__)


def require() -> None:
    """Raise UsageError with what to install where Panel is missing."""
    from importlib.util import find_spec

    if missing := [name for name in ("panel", "bokeh") if find_spec(name) is None]:
        raise UsageError(f"{MISSING} ({' and '.join(missing)} not found)")


class Session:
    """What one reader sees. The address is the state: links, widgets, back and forward all go through it."""

    def __init__(self, found: Store, search: str = "") -> None:
        pn = _panel()
        self._found = found
        self._css = _file("dashboard.css")
        self._quiet = False
        label = "label" if "label" in pn.widgets.Select.param else "name"  # the latter before Panel 1.9
        self._widgets: dict[str, Any] = {
            name: pn.widgets.Select(**{label: name}, options={"all": ALL}, width=width, stylesheets=[self._css])
            for name, width in (("run", 260), ("step", 150), ("rank", 120), ("strategy", 160))
        }
        self.filters = pn.Row(*self._widgets.values(), css_classes=["filters"], stylesheets=[self._css])
        self.body = pn.Column(sizing_mode="stretch_width", css_classes=["body"])
        self.where = Where.of(search)
        self.go: Callable[[Where], None] = self.show
        for name, widget in self._widgets.items():
            widget.param.watch(partial(self._chosen, name), "value")
        self.show(self.where)

    def show(self, where: Where) -> None:
        """Draw a place."""
        self.where = where
        try:
            listed, broken = self._found.survey()
            self._fill(where, listed)
            shown = view.parts(self._found, listed, where, broken)
        except TracekitError as e:
            shown = [panes.reason(str(e))]
        except Exception as e:
            _log.exception("the dashboard cannot show %r", where)
            what = m.clip(f"{type(e).__name__}: {e}", 300)
            shown = [panes.path(Where()), panes.reason(f"This place cannot be shown ({what}). {DEFECT}")]
        self.body[:] = [self._pane(p) for p in shown]

    def _pane(self, part: view.Part) -> Any:
        pn = _panel()
        if isinstance(part, str):
            return pn.pane.HTML(part, sizing_mode="stretch_width", stylesheets=[self._css], margin=0)
        if isinstance(part, list):
            drawn = [self._pane(p) for p in part]
            return pn.Row(*drawn, sizing_mode="stretch_width", css_classes=["pair"], stylesheets=[self._css])
        return pn.pane.Bokeh(part, sizing_mode="stretch_width", margin=(0, 0, 8, 0), css_classes=["chart"])

    def _fill(self, where: Where, listed: Mapping[str, ListedRun]) -> None:
        """Set the widgets to a place, with what can be chosen there; nobody is told of it as a choice."""
        options: dict[str, list[str]] = {"run": list(listed)[::-1], "step": [], "rank": [], "strategy": []}
        if where.run is not None and where.run in listed:
            data = dataset.read(listed[where.run].folder)
            options["step"] = [str(s) for s in sorted(set(data.arrow("steps", ["step"]).column("step").to_pylist()))]
            ranks = set(data.arrow("totals", ["rank"]).column("rank").to_pylist())
            options["rank"] = [rank_text(r) for r in sorted(ranks, key=lambda r: (r is None, r))]
            options["strategy"] = store.strategies(data)
        chosen = {"run": where.run, "step": where.step, "rank": where.rank, "strategy": where.strategy}
        self._quiet = True
        try:
            for name, widget in self._widgets.items():
                value = ALL if chosen[name] is None else str(chosen[name])
                names = options[name] if value in (ALL, *options[name]) else [*options[name], value]
                widget.param.update(options={"all": ALL} | {clean(n): n for n in names}, value=value)
                widget.visible = name == "run" or where.run is not None
        finally:
            self._quiet = False

    def _chosen(self, name: str, event: Any) -> None:
        """A reader chose something: go there."""
        if self._quiet:
            return
        value = event.new or None
        self.go(self.where.to(**{name: int(value) if name == "step" and value is not None else value}))


def application(found: Store) -> Callable[[], Any]:
    """What the server calls for each reader: a page at the place that its address names."""

    def page() -> Any:
        pn = _panel()
        location = pn.state.location
        session = Session(found, location.search if location is not None else "")
        if location is not None:

            def go(where: Where) -> None:
                location.search = where.query

            session.go = go
            location.param.watch(lambda e: session.show(Where.of(e.new)), "search")
        template = pn.Template(_file("dashboard.html"), location=True)
        template.add_variable("style", _file("dashboard.css"))
        template.add_variable("script", _file("dashboard.js"))
        template.add_variable("title", "tracekit dashboard")
        template.add_variable("app_favicon", "data:,")
        template.add_panel("filters", session.filters)
        template.add_panel("body", session.body)
        return template

    return page


def serve(
    found: Store, *, port: int = 0, address: str = "127.0.0.1", origins: Sequence[str] = (), show: bool = True,
    started: Callable[[str], None] | None = None,
) -> None:  # fmt: skip
    """Serve the dashboard until it is interrupted. port 0 = a free one; started: told the page's URL when it listens.

    Only pages from this machine, or from `origins` (host:port), may connect: another site's page in the same browser
    cannot read the runs. UsageError when the port is taken.
    """
    pn = _panel()
    found.runs()  # nothing to show is told before anything is started
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise UsageError(f"--origin {origin!r}: expected HOST:PORT, as in runs.example.org:443")
    if ":" in address and address not in ("::", "::1"):
        raise UsageError(f"--address {address}: only ::1 and :: of IPv6 are served; or give a host's name")
    port = port or _free(address)
    hosts = dict.fromkeys(("localhost", "127.0.0.1", *([] if ":" in address else [address])))
    allowed = [f"{host}:{port}" for host in hosts] + list(origins)
    try:
        server = pn.serve(
            {"/": application(found)}, port=port, address=address, websocket_origin=allowed, show=show, start=False,
            title="tracekit", verbose=False,
        )  # fmt: skip
    except OSError as e:
        raise UsageError(
            f"port {port} on {address} cannot be used ({e.strerror or e}); choose another with --port"
        ) from e
    server.start()
    _first_reader(server, f"http://{_reached(address)}:{port}/")
    if started is not None:
        started(f"http://{'localhost' if ':' in address else address}:{port}/")
    server.run_until_shutdown()


def _first_reader(server: Any, url: str) -> None:
    """Ask for the page once, so that its modules are loaded and its files at hand before anybody waits for them.

    It is asked as a browser would; the session it leaves, which nobody connects to, ends by itself.
    """
    from tornado.httpclient import AsyncHTTPClient, HTTPClientError

    async def ask() -> None:
        client = AsyncHTTPClient(force_instance=True)
        try:
            page = await client.fetch(url, request_timeout=60)
            for path in dict.fromkeys(_LOCAL.findall(page.body.decode("utf-8", "replace"))):
                await client.fetch(url + path, raise_error=False)
        except (HTTPClientError, OSError):
            pass  # a reader will see what it is; not being able to ask oneself is no reason not to serve
        finally:
            client.close()

    server.io_loop.run_sync(ask)


def _reached(address: str) -> str:
    """How this machine reaches a server that listens on the address."""
    return "localhost" if ":" in address else "127.0.0.1" if address == "0.0.0.0" else address  # noqa: S104


def _free(address: str) -> int:
    """A port that nobody listens on."""
    import socket

    try:
        with socket.create_server((address, 0)) as s:
            return int(s.getsockname()[1])
    except OSError as e:
        raise UsageError(f"--address {address}: cannot be listened on ({e.strerror or e})") from e


def _panel() -> Any:
    """Panel, whose classes have no types; loaded when the dashboard starts."""
    import panel

    return panel


def _file(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")
