"""`tracekit doctor`: what is in these files, and how healthy they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import options
from tracekit.commands.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.model import RankTrace


@click.command("doctor")
@options.paths
@options.strict
@options.as_json
@options.no_bar
def command(paths: tuple[str, ...], strict: bool, as_json: bool, quiet: bool) -> None:
    """What is in these files, and how healthy they are: format, writer, ranks, groups, events, links, losses.

    Exit code 3 when no file can be used.
    """
    from tracekit.errors import UnusableInput
    from tracekit.ingest.discover import survey
    from tracekit.output.doctor import lines

    found = survey(paths, witnesses=True)
    reports: list[dict[str, Any]] = [
        {"file": str(path), "format": what.title, "usable": False, "reason": what.advice} for path, what in found.others
    ]
    work = [(path, _examine) for path in found.files] + [(path, _examine_witness) for path in found.witnesses]
    with Progress(quiet) as progress:
        told = progress.step("files examined")
        for done, (path, examine) in enumerate(work, 1):
            reports += examine(path, strict)
            if told is not None:
                told(done, len(work), path.name)
    if as_json:
        click.echo(json.dumps({"files": reports}, indent=1))
    else:
        for one in reports:
            click.echo("\n".join(lines(one)))
    if not any(r["usable"] for r in reports):
        raise UnusableInput("none of these files can be used; the reasons are above")


def _examine(path: Path, strict: bool) -> list[dict[str, Any]]:
    from tracekit.errors import UnusableInput
    from tracekit.parsers import identify, parse

    what = identify(path)
    try:
        traces = parse(path, strict=strict)
    except UnusableInput as e:
        return [{"file": str(path), "format": what.title, "usable": False, "reason": str(e)}]
    return [_report(t, what.title) for t in traces]


def _examine_witness(path: Path, strict: bool) -> list[dict[str, Any]]:
    """A file that tells communication only."""
    from msgspec.structs import asdict

    from tracekit.errors import UnusableInput
    from tracekit.parsers import identify, parse_witness

    title = identify(path).title
    try:
        found = parse_witness(path, strict=strict)
    except UnusableInput as e:
        return [{"file": str(path), "format": title, "usable": False, "reason": str(e)}]
    return [
        {
            "file": w.meta.path, "part": w.meta.part, "format": title, "usable": True, "era": w.meta.era,
            "compression": w.meta.compression, "json_bytes": w.meta.json_bytes, "rank": w.meta.rank,
            "world_size": w.meta.world_size, "backend": w.meta.backend, "nccl_version": w.meta.nccl_version,
            "host": w.meta.host_name, "on_demand": False, "devices": [],
            "groups": [{"name": g.name or g.key, "desc": g.desc, "size": g.size} for g in w.groups],
            "window_ns": _span([t for c in w.calls for t in (c.created_ns, c.completed_ns) if t is not None]),
            "host_rows": 0, "device_rows": 0, "communication_records": len(w.calls), "links": {},
            "events": {"call": len(w.calls)}, "health": [asdict(h) for h in w.health],
        }
        for w in found
    ]  # fmt: skip


def _span(times: list[int]) -> int:
    return max(times) - min(times) if times else 0


def _report(trace: RankTrace, title: str) -> dict[str, Any]:
    from collections import Counter

    from msgspec.structs import asdict

    from tracekit.model import LinkConfidence
    from tracekit.parsers.links import link

    m = trace.meta
    links = Counter(LinkConfidence(int(c)).name.lower() for c in link(trace).confidence)
    return {
        "file": m.path, "part": m.part, "format": title, "usable": True, "era": m.era, "compression": m.compression,
        "json_bytes": m.json_bytes, "rank": m.rank, "world_size": m.world_size, "backend": m.backend,
        "nccl_version": m.nccl_version, "host": m.host_name, "on_demand": m.on_demand,
        "devices": sorted({str(d.get("name")) for d in m.devices if d.get("name")}),
        "groups": [{"name": g.name, "desc": g.desc, "size": g.size} for g in m.groups],
        "window_ns": trace.window_ns[1] - trace.window_ns[0], "host_rows": len(trace.host),
        "device_rows": len(trace.device), "communication_records": len(trace.comm),
        "links": dict(sorted(links.items())), "events": trace.event_counts,
        "health": [asdict(h) for h in trace.health],
    }  # fmt: skip
