"""`tracekit runs`: what a dataset of many runs holds, compaction, retention."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from tracekit.errors import TracekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_folder = click.argument("folder", metavar="DIR")


@click.group("runs")
def command() -> None:
    """A dataset of many runs (`tracekit analyze … -o DIR --as-run NAME`).

    A run that cannot be read is named and left as it is, the others are dealt with; the exit code is 3 then.
    """


@command.command("list")
@_folder
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def show(folder: str, as_json: bool) -> None:
    """Its runs, oldest first."""
    from tracekit.output import runs
    from tracekit.output.text import clean

    found, broken = runs.survey(folder)
    rows = [
        {"run": clean(r.name), "started": runs.started(r), "world_size": r.manifest.get("world_size"), "files": r.files,
         "bytes": r.bytes, "schema_version": r.manifest["schema_version"]}
        for r in found
    ]  # fmt: skip
    _print(rows, as_json)
    _tell(b.error for b in broken)


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    width = max(len("run"), *(len(r["run"]) for r in rows), 0)
    click.echo(f"{'run':<{width}}  {'started (UTC)':<20}  ranks  files        MB")
    for r in rows:
        ranks = "?" if r["world_size"] is None else r["world_size"]
        click.echo(f"{r['run']:<{width}}  {r['started']:<20}  {ranks:>5}  {r['files']:>5}  {r['bytes'] / 1e6:>8.1f}")


@command.command()
@_folder
def compact(folder: str) -> None:
    """Put the files of all ranks of each run together: fewer, larger files; the rows stay as they are."""
    from tracekit.output import runs

    found, broken = runs.survey(folder)
    wrong, saved = [b.error for b in broken], 0
    for r in found:
        try:
            saved += runs.compact(r)
        except TracekitError as e:
            wrong.append(e)
    click.echo(f"{sum(r.files for r in found) - saved} files instead of {sum(r.files for r in found)}")
    _tell(wrong)


@command.command()
@_folder
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the newest N runs.")
@click.option("--older-than", metavar="AGE", help="Let go what started longer ago: 12h, 30d or 8w.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
def prune(folder: str, keep: int | None, older_than: str | None, dry_run: bool) -> None:
    """Let old runs go: all but the newest, or by age. A run without a time base is as old as its dataset."""
    from tracekit.output import runs
    from tracekit.output.text import clean

    if keep is None and older_than is None:
        raise UsageError("say what to let go: --keep N or --older-than AGE")
    age = None if older_than is None else _age(older_than)
    found, broken = runs.survey(folder)
    gone = runs.outdated(found, keep=keep, older_than_ns=age, now_ns=time.time_ns())
    wrong = [b.error for b in broken]
    for r in gone:
        try:
            if not dry_run:
                runs.remove(r)
            click.echo(f"{'would remove' if dry_run else 'removed'} {clean(r.name)} ({runs.started(r)})")
        except TracekitError as e:
            wrong.append(e)
    if not gone:
        click.echo("nothing to remove")
    _tell(wrong)


def _tell(wrong: Iterable[TracekitError]) -> None:
    """Name on standard error what was left as it is; the exit code is that of the first."""
    from tracekit.output.text import clean

    errors = list(wrong)
    sys.stdout.flush()
    for e in errors:
        click.echo("tracekit: " + "\n".join(map(clean, str(e).split("\n"))), err=True)
    if errors:
        what = "1 run" if len(errors) == 1 else f"{len(errors)} runs"
        click.echo(f"tracekit: {what} left as found, all others done", err=True)
        click.get_current_context().exit(errors[0].exit_code)


def _age(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if not found:
        raise UsageError(f"--older-than {text!r}: expected a number and h, d or w, as in 30d")
    return int(found[1]) * _UNITS[found[2]] * 10**9
