"""`tracekit layout`: the mesh of the job: degrees, order, which ranks form which group, and what is missing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import options

if TYPE_CHECKING:
    from tracekit.ingest.run import RunTables
    from tracekit.label.layout import JobGroup, Layout, MapEntry, Solution


@click.command("layout")
@options.paths
@click.option("--layout", "text", metavar="TEXT", help='Declare it: "tp=2,pp=4,dp=8,order=tp-dp-pp".')
@click.option("--run-file", metavar="FILE", help="run.toml with a [layout] table and [[group]] entries.")
@click.option("--map", "map_file", metavar="FILE", help="TOML file of [[group]] entries: which group is what.")
@options.reading
@options.as_json
def command(
    paths: tuple[str, ...],
    text: str | None,
    run_file: str | None,
    map_file: str | None,
    rule_files: tuple[str, ...],
    strict: bool,
    step_pattern: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """The mesh of the job: degrees with their evidence, order, rank grid, groups, and what is missing.

    PATH is a trace file, a folder (searched through) or a glob pattern; all of them together are one job.
    """
    from tracekit.ingest.run import run
    from tracekit.ingest.worker import Options
    from tracekit.label.layout.document import document
    from tracekit.output.layout import lines

    declared, entries = _declared(text, run_file, map_file)
    tables = run(paths, Options(strict=strict, rules=rule_files, step_pattern=step_pattern), **how)
    groups, solution = solution_of(tables, rule_files, declared, entries)
    ranks = [r["rank"] for r in tables.tables["ranks"] if r["used"] and r["rank"] is not None]
    doc = document(solution, groups, tables.world_size, ranks)
    click.echo(json.dumps(doc, indent=1) if as_json else "\n".join(lines(doc)))


def _declared(
    text: str | None, run_file: str | None, map_file: str | None
) -> tuple[Layout | None, tuple[MapEntry, ...]]:
    """What the user states; the option comes before the run file, the map's entries before its own."""
    from tracekit.label.layout import parse_layout, read_map, read_run_toml

    config = read_run_toml(run_file) if run_file else None
    entries = (*(read_map(map_file) if map_file else ()), *(config.groups if config else ()))
    return parse_layout(text) if text is not None else config.layout if config else None, entries


def solution_of(
    run: RunTables, rule_files: tuple[str, ...], declared: Layout | None, entries: tuple[MapEntry, ...]
) -> tuple[list[JobGroup], Solution]:
    """Groups of the run and the layout they tell of."""
    from tracekit.label import load_rules
    from tracekit.label.layout import JobGroup, load_tables, solve
    from tracekit.label.layout.described import axes_of

    rules = load_rules(rule_files)
    members: dict[tuple[Any, Any, Any], list[tuple[int, int]]] = {}
    for row in run.tables["groups"]:
        key = (row["group_id"], row["group_name"], row["group_desc"])
        members.setdefault(key, []).append((row["position"], row["rank"]))
    groups = []
    for (_, name, desc), placed in members.items():
        ranks = tuple(rank for _, rank in sorted(placed))
        groups.append(JobGroup(name, desc, ranks, len(ranks), axes=axes_of(desc, rules)))
    solution = solve(
        groups, world_size=run.world_size, pg_count=None, frameworks=frozenset(run.frameworks), declared=declared,
        tables=load_tables(rule_files), entries=entries,
    )  # fmt: skip
    return groups, solution
