"""`tracekit explain`: why a communication call has the label it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import options
from tracekit.commands.progress import Progress
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.model import Label, LabelledRank


@click.command("explain")
@options.paths
@click.option(
    "--collective",
    "which",
    metavar="[RANK:]ID",
    help="Number of the call in its rank (column `id` of `collectives`).",
)
@click.option(
    "--site",
    metavar="[RANK:]TEXT",
    help="All calls whose operation, group, scope or kernel contains TEXT, one explanation for each different label.",
)
@options.reading
def command(
    paths: tuple[str, ...],
    which: str | None,
    site: str | None,
    rule_files: tuple[str, ...],
    step_pattern: str | None,
    rank_regex: str | None,
    rank_map: str | None,
    strict: bool,
    layout: str | None,
    group_map: str | None,
    config: str | None,
    workers: int | None,
) -> None:
    """Why a communication call has its label: every rule that fired, what it saw, why it won or lost."""
    from tracekit.ingest.locate import rank_of_run
    from tracekit.ingest.worker import Options, declared

    if (which is None) == (site is None):
        raise UsageError("explain: give one of --collective [RANK:]ID and --site [RANK:]TEXT")
    how = Options(strict, tuple(rule_files), step_pattern, declared=declared(layout, group_map, config))
    rank, number, text = _parse(which) if which is not None else _place(site or "")
    with Progress(quiet=False) as progress:
        labelled = rank_of_run(
            paths, how, rank, rank_regex=rank_regex, rank_map=rank_map, workers=workers, progress=progress.reading
        )
    lines = _one(labelled, number, which) if which is not None else _at_site(labelled, text)
    for line in lines:
        click.echo(line)


def _parse(which: str) -> tuple[int | None, int, str]:
    rank, _, number = which.rpartition(":")
    if not number.isdecimal() or (rank and not rank.isdecimal()):
        raise UsageError(f"--collective {which}: expected ID or RANK:ID, two whole numbers")
    return (int(rank) if rank else None), int(number), ""


def _place(site: str) -> tuple[int | None, int, str]:
    rank, colon, text = site.partition(":")
    named = bool(colon) and rank.isdecimal()
    wanted = text if named else site
    if not wanted:
        raise UsageError("--site: expected a text to look for, as TEXT or RANK:TEXT")
    return (int(rank) if named else None), 0, wanted


def _one(labelled: LabelledRank, number: int, which: str) -> list[str]:
    if not 0 <= number < len(labelled.calls):
        raise UsageError(f"--collective {which}: this rank has {len(labelled.calls)} calls, numbered from 0")
    return _lines(labelled, number)


def _at_site(labelled: LabelledRank, text: str) -> list[str]:
    """One explanation for each different label among the calls at a site."""
    found: dict[Label, list[int]] = {}
    for number, c in enumerate(labelled.calls):
        seen = (c.op, c.op_raw, c.group_desc, c.group_name, c.kernel, *c.scopes, *c.via, *c.frames)
        if any(part is not None and text in part for part in seen):
            found.setdefault(c.label, []).append(number)
    if not found:
        raise UsageError(
            f"--site {text}: no call of this rank has it in its operation, group, scopes, frames or kernel"
        )
    lines: list[str] = []
    for label, numbers in sorted(found.items(), key=lambda kv: (-len(kv[1]), kv[1][0])):
        shown = ", ".join(map(str, numbers[:8])) + (" …" if len(numbers) > 8 else "")
        lines += ["", f"{len(numbers)} calls labelled {label.strategy}: {shown}", *_lines(labelled, numbers[0])]
    return lines[1:]


def _lines(labelled: LabelledRank, number: int) -> list[str]:
    from tracekit.label import explain_call
    from tracekit.model import LinkConfidence
    from tracekit.output.text import clean, ms

    c = labelled.calls[number]
    origin = labelled.window_ns[0]
    known: list[tuple[str, Any]] = [
        ("operation", f"{c.op} ({c.op_raw})"),
        (
            "group",
            f"{c.group_desc or c.group_name or 'unknown'}, {c.group_size or '?'} ranks"
            + (f": {_members(c.members)}" if c.members else ""),
        ),
        ("size", f"{c.payload_bytes:,} bytes" if c.payload_bytes is not None else "unknown"),
        ("called", "unknown" if c.call_ts is None else f"{ms(c.call_ts - origin)} ms after the rank's first event"),
        (
            "ran",
            "no device work in this file"
            if c.ts is None
            else f"{ms(c.dur or 0)} ms from {ms(c.ts - origin)} ms, {c.kernel}",
        ),
        ("link", LinkConfidence(c.link).name.lower()),
        ("scopes", " > ".join(c.scopes) or "none"),
        *([("frames", " > ".join(c.frames))] if c.frames else []),
    ]
    return [*(f"{k:10} {clean(v)}" for k, v in known), "", *(clean(line) for line in explain_call(c))]


def _members(members: tuple[int, ...]) -> str:
    text = ", ".join(map(str, members[:16]))
    return text + (" …" if len(members) > 16 else "")
