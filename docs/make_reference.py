"""Writes docs/commands.md (from `--help`) and docs/glossary.md (from the data dictionary); run it when either changes.

    python docs/make_reference.py

A test compares both pages with what this writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from tracekit.commands import cli
from tracekit.model import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parent
GLOSSARY_LEAD = (
    """Every number that tracekit publishes: what it says, its unit, how it is computed, and the tables that have it.
The columns of each table are in [output.md](output.md#tables), beside the data in the table `columns`, and on the
terminal with `tracekit schema`.""",
    """C = union of communication on a device, K = union of compute; |X| = length; ∩ both; \\ without. C_s: of the
strategy s. Every total is the length of a union of intervals, never a sum over streams.""",
)
GLOSSARY_HEADS = "| number | unit | meaning | formula | tables |\n| --- | --- | --- | --- | --- |"
HERE = "<!-- written by docs/make_reference.py -->"


def commands_page() -> str:
    """Every command and sub-command with its help, as `--help` prints it."""
    usage = "[usage.md](usage.md) has the options of `analyze` at length."
    parts = ["# Commands", HERE, f"What `tracekit COMMAND --help` prints. {usage}"]
    for words, command in _commands(cli, ("tracekit",)):
        level = "#" * max(len(words) + 1, 2)
        parts += [f"{level} `{' '.join(words)}`", f"```text\n{_help(words, command)}\n```"]
    return "\n\n".join(parts) + "\n"


def _commands(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = cast("click.Command", group.get_command(context, name))
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


def _help(words: tuple[str, ...], command: click.Command) -> str:
    parent = None
    for word in words[:-1]:
        parent = click.Context(cli, info_name=word, parent=parent)
    settings: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100, "help_option_names": ["-h", "--help"]}
    with click.Context(command, info_name=words[-1], parent=parent, **settings) as context:
        return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def glossary_page() -> str:
    """Every measured or computed column once for each meaning, with its unit, formula and tables."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for table in TABLES.values():
        for c in table.columns:
            if c.unit or c.formula:
                found.setdefault((c.name, c.unit, c.meaning, c.formula), []).append(table.name)
    head = ["# Glossary", HERE, *GLOSSARY_LEAD, GLOSSARY_HEADS]
    rows = [
        f"| `{name}` | {unit} | {_cell(meaning)} | {f'`{_cell(formula)}`' if formula else ''} | {', '.join(tables)} |"
        for (name, unit, meaning, formula), tables in sorted(found.items())
    ]
    return "\n\n".join(head) + "\n" + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {"commands.md": commands_page, "glossary.md": glossary_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")
