"""The pages as a site, with Sphinx: `make docs`. All of it is local: no font, script or search from elsewhere.

The menu is docs/index.md: its headings are the groups, its links the pages, in that order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.version import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "tracekit"
author = "the tracekit authors"
release = __version__
language = "en"
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"tracekit {__version__}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # it is fetched, which a page opened as a file may not
html_show_copyright = False
html_show_sphinx = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

_GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"\]\(([\w-]+)\.md\)")
_BARE = re.compile(r"\[([\w-]+\.md)\](?=\(\1[)#])")


def menu(index: str) -> str:
    """Hidden tables of contents, one a heading of the index, with the pages that its links lead to."""
    parts = _GROUP.split(index)[1:]
    blocks = (
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *dict.fromkeys(_PAGE.findall(text)), "```"])
        for caption, text in zip(parts[::2], parts[1::2], strict=True)
    )
    return "\n\n".join(blocks)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """A link that reads as a file's name gets the title of what it leads to."""
    source[0] = _BARE.sub("[]", source[0])
    if name == app.config.root_doc:
        source[0] += "\n\n" + menu(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
