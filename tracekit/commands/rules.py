"""`tracekit rules`: list, show and check the matching rules."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from tracekit.commands import options
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.label import Rules

KINDS = ("kernel", "step", "chunk", "rule", "fact", "framework", "order", "creation")


@click.group("rules", no_args_is_help=True)
def command() -> None:
    """List, show and check the matching rules."""


@command.command("list")
@options.rules
@click.option("--kind", type=click.Choice(KINDS), help="Only rules of this kind.")
def list_rules(rule_files: tuple[str, ...], kind: str | None) -> None:
    """One line a rule: kind, id, what it concludes, where it stands."""
    for name, rule in _all(_load(rule_files)):
        if kind in (None, name):
            source = getattr(rule, "source", "layouts.toml")
        click.echo(f"{name:9} {rule.id:44} {_conclusion(name, rule):44} {source}")


@command.command("show")
@click.argument("rule_id", metavar="ID")
@options.rules
def show(rule_id: str, rule_files: tuple[str, ...]) -> None:
    """Every field of one rule."""
    found = [(k, r) for k, r in _all(_load(rule_files)) if r.id == rule_id]
    if not found:
        raise UsageError(f"no rule {rule_id!r}; `tracekit rules list` names them all")
    for kind, rule in found:
        click.echo(f"{kind} {rule.id}")
        for line in _fields(rule, "  "):
            click.echo(line)


@command.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
def check(files: tuple[str, ...]) -> None:
    """Check rule files; a mistake is reported with file, rule and field (exit code 2)."""
    before = len(list(_all(_load(()))))
    after = len(list(_all(_load(files))))
    click.echo(f"{', '.join(files)}: no mistake; {after} rules in force ({after - before:+d})")


def _load(files: tuple[str, ...]) -> Rules:
    from tracekit.label import load_rules

    return load_rules(files)


def _all(rules: Rules) -> list[tuple[str, Any]]:
    return [
        *(("kernel", r) for r in rules.kernels),
        *(("step", r) for r in rules.steps),
        *(("chunk", r) for r in rules.chunks),
        *(("rule", r) for r in rules.labels),
        *(("fact", r) for r in rules.facts),
        *(("framework", r) for r in rules.frameworks),
        *(("order", r) for r in rules.layouts.orders),
        *(("creation", r) for r in rules.layouts.creations),
    ]


def _conclusion(kind: str, rule: Any) -> str:
    if kind == "kernel":
        return f"{_plain(rule.kind)} {rule.family or ''}".strip()
    if kind in ("step", "chunk"):
        return _plain(rule.pattern)
    if kind == "framework":
        return str(rule.title)
    if kind == "order":
        return "-".join(rule.axes)
    if kind == "creation":
        return f"{rule.framework}: {len(rule.items)} kinds of groups"
    if kind == "rule":
        return f"{rule.tier} {rule.confidence:.2f} " + " ".join(f"{k}={v}" for k, v in rule.then.items())
    return ""


def _plain(value: Any) -> str:
    pattern = getattr(value, "pattern", None)
    if isinstance(pattern, str):
        return pattern
    if isinstance(value, Enum):
        return value.name.lower()
    return str(value)


def _fields(value: Any, indent: str) -> list[str]:
    out = []
    for name in value.__struct_fields__:
        item = getattr(value, name)
        if item in (None, (), "", False) or name == "id":
            continue
        if isinstance(item, Struct):
            out += [f"{indent}{name}:", *_fields(item, indent + "  ")]
        else:
            out.append(f"{indent}{name} = {_plain(item)}")
    return out
