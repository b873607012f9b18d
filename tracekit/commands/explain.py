"""`tracekit explain`: why a communication call has the label it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import options
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.model import LabelledRank


@click.command("explain")
@options.paths
@click.option(
    "--collective",
    "which",
    required=True,
    metavar="[RANK:]ID",
    help="Number of the call in its rank (column `id` of `collectives`).",
)
@options.rules
@options.step_pattern
@options.rank_regex
@options.rank_map
@options.strict
def command(
    paths: tuple[str, ...],
    which: str,
    rule_files: tuple[str, ...],
    step_pattern: str | None,
    rank_regex: str | None,
    rank_map: str | None,
    strict: bool,
) -> None:
    """Why a communication call has its label: every rule that fired, what it saw, why it won or lost."""
    from tracekit.ingest.locate import rank_of_run
    from tracekit.ingest.worker import Options

    rank, number = _parse(which)
    how = Options(strict, tuple(rule_files), step_pattern)
    labelled = rank_of_run(paths, how, rank, rank_regex=rank_regex, rank_map=rank_map)
    if not 0 <= number < len(labelled.calls):
        raise UsageError(f"--collective {which}: this rank has {len(labelled.calls)} calls, numbered from 0")
    for line in _lines(labelled, number):
        click.echo(line)


def _parse(which: str) -> tuple[int | None, int]:
    rank, _, number = which.rpartition(":")
    if not number.isdigit() or (rank and not rank.isdigit()):
        raise UsageError(f"--collective {which}: expected ID or RANK:ID, two whole numbers")
    return (int(rank) if rank else None), int(number)


def _lines(labelled: LabelledRank, number: int) -> list[str]:
    from tracekit.label import explain_call
    from tracekit.model import LinkConfidence
    from tracekit.output.summary import clean, ms

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
    ]
    return [*(f"{k:10} {clean(v)}" for k, v in known), "", *(clean(line) for line in explain_call(c))]


def _members(members: tuple[int, ...]) -> str:
    text = ", ".join(map(str, members[:16]))
    return text + (" …" if len(members) > 16 else "")
