"""`tracekit perfetto`: the run as a trace for ui.perfetto.dev."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tracekit.commands import options
from tracekit.commands.progress import Progress
from tracekit.commands.source import result_of
from tracekit.errors import UsageError

_UNITS = {"": 1_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1, "s": 1_000_000_000}
MOST_DIGITS = 18
_TIME = re.compile(r"(-?\d+(?:\.\d+)?)\s*(ms|us|ns|s|)")


@click.command("perfetto")
@options.paths
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE",
              help="The trace; a name that ends in .gz is compressed.")  # fmt: skip
@click.option("-f", "--force", is_flag=True, help="Replace FILE even if tracekit did not write it.")
@click.option("--ranks", metavar="LIST", help="Only these ranks, e.g. 0-3,7.")
@click.option("--steps", metavar="LIST", help="Only these steps, by their numbers, e.g. 20-21.")
@click.option("--window", metavar="FROM:TO", help="Only what touches this time of the run, e.g. 120:180ms; also us, s.")
@options.reading
@click.option("-q", "--quiet", is_flag=True, help="Write the file and say nothing.")
def command(
    paths: tuple[str, ...], output: Path, force: bool, ranks: str | None, steps: str | None, window: str | None,
    quiet: bool, rule_files: tuple[str, ...], **how: Any,
) -> None:  # fmt: skip
    """Write the run as a trace that ui.perfetto.dev opens.

    Ranks are processes on the common clock; every strategy is a track, and in each call the parts that no compute
    hides are slices of their own. PATH: traces, or a dataset written with `tracekit analyze -o`.
    """
    which, when, part = numbers(ranks, "--ranks"), numbers(steps, "--steps"), times(window)
    from tracekit.output.chrome import may_write

    may_write(output, overwrite=force)  # better told before the work than after it
    with Progress(quiet) as progress:
        result = result_of(paths, progress, detail=True, rules=rule_files, **how)
        written = result.perfetto(
            output, ranks=which, steps=when, window=part, overwrite=force, progress=progress.step("ranks drawn")
        )
    if quiet:
        return
    for note in written.notes[:8]:
        click.echo(f"note    {note}", err=True)
    click.echo(
        f"wrote   {output} ({written.ranks} rank{'s' if written.ranks != 1 else ''}, {written.slices:,} slices, "
        f"{written.flows:,} arrows); open it at https://ui.perfetto.dev"
    )


def numbers(text: str | None, option: str) -> list[int] | None:
    """`0-3,7` → [0, 1, 2, 3, 7]; UsageError names the part that is none."""
    if text is None:
        return None
    out: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if max(len(low), len(high)) > MOST_DIGITS:
            raise UsageError(f"{option} {text[:40]!r}…: a number has up to {MOST_DIGITS} digits")
        if not low.isdecimal() or (dash and not high.isdecimal()) or (dash and int(high) < int(low)):
            raise UsageError(f"{option} {text!r}: {part.strip()!r} is no number or range, as in 0-3,7")
        if int(high or low) - int(low) > 1_000_000:
            raise UsageError(f"{option} {text!r}: {part.strip()!r} is a range of more than a million")
        out |= set(range(int(low), int(high or low) + 1))
    return sorted(out)


def times(text: str | None) -> tuple[int | None, int | None]:
    """`120:180ms` → ns; each end may be left out. The unit of the second end also holds for a first without one."""
    if text is None:
        return None, None
    first, colon, second = text.partition(":")
    if not colon or not (first.strip() or second.strip()):
        raise UsageError(f"--window {text!r}: expected FROM:TO in ms, us, ns or s, as in 120:180ms")
    found = [_TIME.fullmatch(part.strip()) if part.strip() else None for part in (first, second)]
    if any(part.strip() and match is None for part, match in zip((first, second), found, strict=True)):
        raise UsageError(f"--window {text!r}: expected FROM:TO in ms, us, ns or s, as in 120:180ms")
    unit = next((m[2] for m in reversed(found) if m and m[2]), "")
    if any(m and len(m[1]) > MOST_DIGITS for m in found):
        raise UsageError(f"--window {text[:40]!r}…: a number has up to {MOST_DIGITS} digits")
    low, high = (None if m is None else round(float(m[1]) * _UNITS[m[2] or unit]) for m in found)
    if low is not None and high is not None and high <= low:
        raise UsageError(f"--window {text!r}: ends before it begins")
    return low, high
