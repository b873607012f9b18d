"""The doctor's report on one file as text."""

from __future__ import annotations

from typing import Any

from tracekit.output.text import clean, ms


def lines(r: dict[str, Any]) -> list[str]:
    """Lines for the terminal."""
    if not r["usable"]:
        return [clean(r["file"]), f"  not usable: {clean(r['format'])}: {clean(r['reason'])}"]
    part = f" (part {r['part']})" if r["part"] else ""
    rank = "unknown" if r["rank"] is None else r["rank"]
    world = f" of {r['world_size']}" if r["world_size"] else ""
    doubt = " (on-demand capture: the rank is doubtful)" if r["on_demand"] else ""
    out = [
        clean(r["file"]) + part,
        f"  format    {clean(r['format'])}, {r['era']}, {r['json_bytes']:,} bytes of JSON"
        + (f" in {r['compression']}" if r["compression"] else ""),
        f"  rank      {rank}{world}{doubt}",
        f"  job       backend {clean(r['backend'] or '–')}, NCCL {clean(r['nccl_version'] or '–')}",
        f"  host      {clean(r['host'] or '–')}",
        f"  devices   {clean(', '.join(r['devices']) or 'none named')}",
        f"  window    {ms(r['window_ns'])} ms",
        f"  rows      {r['host_rows']:,} host, {r['device_rows']:,} device, {r['communication_records']:,} records",
        f"  links     {', '.join(f'{k} {v:,}' for k, v in r['links'].items()) or '–'} (device work to its launch)",
        f"  groups    {_groups(r['groups'])}",
        f"  events    {', '.join(f'{clean(k)} {v:,}' for k, v in r['events'].items())}",
    ]
    out += [
        f"  {h['severity']:9} {clean(h['reason'])}: {h['count']:,}"
        + (f" — e.g. {clean(h['example'])[:100]}" if h["example"] else "")
        for h in r["health"]
    ]
    return out if r["health"] else [*out, "  healthy   nothing dropped, repaired or guessed"]


def _groups(groups: list[dict[str, Any]]) -> str:
    if not groups:
        return "none declared"
    shown = [f"{clean(g['name'])}={clean(g['desc'] or '?')}×{g['size'] or '?'}" for g in groups[:8]]
    return ", ".join(shown) + (f", … ({len(groups)} in all)" if len(groups) > 8 else "")
