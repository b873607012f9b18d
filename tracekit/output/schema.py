"""The data dictionary, from the one place that defines it."""

from __future__ import annotations

from tracekit.model import SCHEMA_VERSION, TABLES, Table


def markdown(names: list[str]) -> str:
    """Columns of the named tables as Markdown."""
    lines = [f"Schema version {SCHEMA_VERSION}.", ""]
    for name in names:
        table = TABLES[name]
        where = f"`{name}/rank=…/*.parquet`" if table.per_rank else f"`{name}/*.parquet`"
        lines += [f"### `{name}`", "", f"{table.meaning[:1].upper()}{table.meaning[1:]} ({where}).", ""]
        lines += ["| column | type | unit | null | meaning | formula |", "| --- | --- | --- | --- | --- | --- |"]
        for c in table.columns:
            formula = f"`{c.formula}`".replace("|", "\\|") if c.formula else ""
            meaning = c.meaning.replace("|", "\\|")
            lines.append(
                f"| `{c.name}` | {_type(c.type)} | {c.unit} | {'yes' if c.nullable else ''} | {meaning} | {formula} |"
            )
        lines.append("")
    return "\n".join(lines)


def _type(name: str) -> str:
    return {"dict": "string (dictionary)", "timestamp": "timestamp[ns, UTC]"}.get(name, name)


def plain(names: list[str]) -> str:
    """Columns of the named tables as aligned text."""
    lines = [f"schema version {SCHEMA_VERSION}"]
    for name in names:
        table: Table = TABLES[name]
        lines += ["", f"{name}: {table.meaning}"]
        width = max(len(c.name) for c in table.columns)
        for c in table.columns:
            unit = f" [{c.unit}]" if c.unit else ""
            null = ", may be null" if c.nullable else ""
            formula = f" = {c.formula}" if c.formula else ""
            lines.append(f"  {c.name:<{width}}  {_type(c.type)}{unit}{null}: {c.meaning}{formula}")
    return "\n".join(lines)
