"""Real files: counts and exact sums against a second reading; everything foreign is named."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest
from second_reading import DEVICE, HOST, counts, load, of_table, summary

from tracekit.errors import ForeignFormat
from tracekit.parsers import identify, parse

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 400_000
"""Bytes on disk up to which a file is read a second time; the larger ones are only sampled."""

NAMES = {
    "execution-trace": {"execution-trace"},
    "rocprofiler-sdk JSON": {"rocprof"},
    "xplane protobuf": {"xplane"},
    "tar.gz": {"tar"},
    "parquet": {"op-table"},
    "text log": {"nccl-log"},
    "jsonl": {"nccl-profiler", "nccl-inspector"},
    "csv": {"msprof", "csv"},
    "nsys-rep (binary)": {"nsys-rep"},
}

pytestmark = pytest.mark.shared


def files(shared: Path) -> list[Path]:
    found = [p for p in sorted(shared.glob("corpus/*/*/*")) if p.is_file() and identify(p).readable]
    found += sorted(shared.glob("recordings/*/rank*.json.gz"))
    small = [p for p in found if p.stat().st_size <= LARGEST]
    return small[::3] + [p for p in found if p.stat().st_size > LARGEST][::12]


def test_counts_and_sums_are_exact(shared: Path) -> None:
    for path in files(shared):
        doc = load(path)
        (trace,) = parse(path)
        assert trace.event_counts == counts(doc), path
        assert of_table(trace, trace.host) == summary(doc, HOST), path
        assert of_table(trace, trace.device) == summary(doc, DEVICE), path
        assert not any(h.severity == "lost" for h in trace.health), path


def test_foreign_files_of_the_manifest_are_named(shared: Path) -> None:
    with (shared / "corpus" / "MANIFEST.tsv").open(newline="") as table:
        entries = [(r["format"], shared / "corpus" / r["file"]) for r in csv.DictReader(table, delimiter="\t")]
    for kind, path in entries:
        found = identify(path)
        expected = {"flight-recorder"} if kind.startswith("pickle (flight recorder") else NAMES.get(kind)
        if expected is not None:
            assert found.name in expected, (path, found)
        if not found.readable:
            assert found.name not in ("unknown", "binary", "json", "chrome"), path
            with pytest.raises(ForeignFormat, match=path.name[:12]):
                parse(path)
