"""The job's mesh as text, from the document of `tracekit.label.layout.document`."""

from __future__ import annotations

from typing import Any

from tracekit.output.text import clean

Row = dict[str, Any]
MAX_ALTERNATIVES = 8


def lines(doc: Row) -> list[str]:
    """Lines for the terminal: layout, degrees, rank grid, groups, what is missing, findings."""
    out = [_head(doc)]
    layout = doc["layout"]
    if layout:
        out += ["", "degrees", *_degrees(layout)]
        out += [f"  told by  {clean(e)}" for e in layout["evidence"]]
    if doc["alternatives"]:
        out += ["", "possible layouts", *_alternatives(doc["alternatives"])]
    if doc["grid"]:
        width = max(len(r["at"]) for r in doc["grid"])
        out += ["", f"ranks along {doc['grid'][0]['along'] or 'nothing: one rank'}"]
        out += [f"  {r['at']:{width}}{'  ' if width else ''}{r['ranks']}" for r in doc["grid"]]
    out += ["", "groups", *_groups(doc["groups"])]
    out += ["", "missing", *(f"  {clean(m)}" for m in doc["missing"])] if doc["missing"] else []
    if doc["findings"]:
        out += ["", "findings", *(f"  {f['severity']:8} {clean(f['message'])}" for f in doc["findings"])]
    return out


def _head(doc: Row) -> str:
    world = f"{doc['world_size']:,} ranks" if doc["world_size"] else "world size unknown"
    traces = f"traces of {doc['traces']}" if doc["traces"] else "no rank known"
    layout = doc["layout"]
    if layout is None:
        return f"layout   unknown · {world} · {traces}"
    part = "" if layout["complete"] else " · incomplete"
    how = f"from {clean(layout['source'])}, confidence {layout['confidence']:.2f}"
    return f"layout   {layout['text']}{part} · {world} · {traces} · {how}"


def _degrees(layout: Row) -> list[str]:
    out = []
    for place, d in enumerate(layout["degrees"]):
        stride = f"stride {d['stride']}" if d["stride"] is not None and d["size"] > 1 else ""
        mark = "fastest" if place == 0 and len(layout["degrees"]) > 1 else ""
        out.append(f"  {d['axis']:12} {d['size']:>6}  {stride:14}{mark}".rstrip())
    if layout["expert"]:
        out.append("  experts      " + " ".join(f"{d['axis']}={d['size']}" for d in layout["expert"]))
    return out


def _alternatives(layouts: list[Row]) -> list[str]:
    shown = [f"  {x['text']}" for x in layouts[:MAX_ALTERNATIVES]]
    more = len(layouts) - MAX_ALTERNATIVES
    return [*shown, f"  … and {more} more"] if more > 0 else shown


def _groups(groups: list[Row]) -> list[str]:
    """One line for groups alike: same description, size and axes; how many there are, and the first one's ranks."""
    kinds: dict[tuple[Any, ...], list[Row]] = {}
    for g in groups:
        kinds.setdefault((g["axes"], g["desc"], g["size"], g["rule"], g["confidence"]), []).append(g)
    if not kinds:
        return ["  none is known"]
    table = [("axes", "size", "groups", "first", "ranks", "description", "told by")]
    for (axes, desc, size, rule, confidence), some in kinds.items():
        told = f"{rule} ({confidence:.2f})" if rule else "its description" if axes else "–"
        first = clean(some[0]["name"] or "–")
        table.append(
            (axes or "?", str(size or "?"), str(len(some)), first, some[0]["ranks"] or "?", clean(desc or "–"), told)
        )
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  " + "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
