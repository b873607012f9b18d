"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

paths = click.argument("paths", nargs=-1, required=True, metavar="PATH…")
strict = click.option("--strict", is_flag=True, help="Refuse damaged files instead of salvaging what is whole.")
rules = click.option(
    "--rules",
    "rule_files",
    multiple=True,
    metavar="FILE",
    help="Rule file (TOML) that adds to or overrides the shipped rules; repeatable.",
)
step_pattern = click.option(
    "--step-pattern",
    metavar="REGEX",
    help="Annotations that match it as a whole are steps; group `step` gives the number.",
)
rank_regex = click.option(
    "--rank-regex", metavar="REGEX", help="Find the rank in the path; group `rank`, else the first group."
)
rank_map = click.option("--rank-map", metavar="FILE", help="File of lines `file-name rank`.")
layout = click.option(
    "--layout",
    metavar="TEXT",
    help='Degrees of the job, such as "tp=2,pp=4,dp=8,cp=1,ep=8,order=tp-cp-ep-dp-pp".',
)
group_map = click.option("--map", "group_map", metavar="FILE", help="File (TOML) that says what groups are for.")
config = click.option("--run", "config", metavar="FILE", help="run.toml: layout, groups, model, training, hardware.")
workers = click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes; default: one a core, never more than files."
)
no_bar = click.option("-q", "--quiet", is_flag=True, help="No progress bar, not even on a terminal.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def reading(function: F) -> F:
    """All options that say how to read the traces."""
    for option in (workers, config, group_map, layout, rank_map, rank_regex, step_pattern, rules, strict):
        function = option(function)
    return function
