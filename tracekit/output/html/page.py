"""The page as one file: its policy, style, scripts and data, all inline."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.output import colours
from tracekit.output.html.markup import esc
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.output.html.section import Section


def assemble(title: str, sections: Sequence[Section], data: dict[str, Any]) -> str:
    """HTML of the page. `data`: the result tables, readable by scripts from the block `tracekit-data`."""
    charts = {c.name: c.item for s in sections for c in s.charts}
    payloads = {k: v for s in sections for k, v in s.payloads.items()}
    lanes = {
        "compute": colours.COMPUTE,
        "fused": colours.CLASSES["fused_ns"],
        "copy": colours.CLASSES["exposed_copy_ns"],
    }
    blocks = {"tracekit-data": data, "charts": charts, "payloads": payloads,
              "colours": {"strategies": colours.STRATEGIES, "lanes": lanes}}  # fmt: skip
    scripts = [_script(_bokeh()), _script(_own("page.js"))] if charts or payloads else [_script(_own("page.js"))]
    nav = "".join(f'<li><a href="#{s.id}">{esc(s.short)}</a></li>' for s in sections)
    main = "".join(
        f'<section id="{s.id}" aria-labelledby="h-{s.id}"><h2 id="h-{s.id}">{esc(s.title)}</h2>{s.body}</section>\n'
        for s in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="tracekit {esc(__version__)}">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{esc(title)}</title>
<style>{_own("page.css")}</style>
</head>
<body>
<a class="skip" href="#verdict">to the verdict</a>
<header><h1>tracekit report<small>{esc(title)}</small></h1><button type="button" id="theme">dark</button></header>
<nav aria-label="parts of the report"><ul>{nav}</ul></nav>
<main>
{main}</main>
<footer><p>tracekit {esc(__version__)} · times are ms, counted from the tables of the run; every underlined term leads
to its definition. The page asks no network for anything.</p></footer>
{"".join(_block(name, value) for name, value in blocks.items())}
{"".join(f"<script>{text}</script>{chr(10)}" for text in scripts)}</body>
</html>
"""


def _block(name: str, value: object) -> str:
    return f'<script type="application/json" id="{name}">{to_json(value)}</script>\n'


def to_json(value: object) -> str:
    """JSON that cannot end the script element it stands in, whatever strings it holds."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 and the like are escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: Sequence[str]) -> str:
    """Nothing from anywhere; scripts only these, by their hash."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _script(text: str) -> str:
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r\n", "\n")


def _own(name: str) -> str:
    return (files("tracekit.output.html") / name).read_text("utf-8")


def _bokeh() -> str:
    import bokeh

    return (Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js").read_text("utf-8")
