"""A naive second reading of a Kineto file (`json` and `Decimal`), to compare the parser with."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HOST = {
    "cpu_op", "Operator", "user_annotation", "User", "cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime",
    "xpu_driver", "mtia_runtime", "privateuse1_runtime", "privateuse1_driver",
}  # fmt: skip
DEVICE = {"kernel", "Kernel", "collective_comm", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}


def load(path: Path) -> Any:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return json.loads(data, parse_float=Decimal)


def ns(value: Any) -> int:
    return int((Decimal(str(value)) * 1000).to_integral_value())


def ident(value: Any) -> int:
    value = -1 if value is None else int(value) % (1 << 64)
    return value - (1 << 64) if value >= 1 << 63 else value


def rows(doc: Any, cats: set[str]) -> list[dict[str, Any]]:
    events = doc["traceEvents"] if isinstance(doc, dict) else doc
    return [
        e for e in events
        if e.get("ph") == "X" and e.get("cat") in cats and e["name"] not in ("event_wait", "event_record")
    ]  # fmt: skip


def summary(doc: Any, cats: set[str]) -> dict[str, Any]:
    found = rows(doc, cats)
    base = int(doc.get("baseTimeNanoseconds", 0)) if isinstance(doc, dict) else 0
    absolute = sum(ns(e["ts"]) >= 10**18 for e in found) * 2 > len(found)
    args = [e.get("args") or {} for e in found]
    return {
        "n": len(found),
        "ts": sum(ns(e["ts"]) + (0 if absolute else base) for e in found),
        "dur": sum(ns(e["dur"]) for e in found),
        "corr": sum(ident(a.get("correlation")) for a in args),
        "ext": sum(ident(a.get("External id", a.get("external id"))) for a in args),
        "names": Counter(e["name"] for e in found),
    }


def counts(doc: Any) -> dict[str, int]:
    events = doc["traceEvents"] if isinstance(doc, dict) else doc
    found = Counter(f"{e['ph']}:{e['cat']}" if e.get("cat") is not None else str(e.get("ph")) for e in events)
    return dict(sorted(found.items()))


def of_table(trace: Any, table: Any) -> dict[str, Any]:
    """The same sums from the parsed columns."""
    return {
        "n": len(table),
        "ts": sum(table.ts.tolist()),
        "dur": sum(table.dur.tolist()),
        "corr": sum(table.corr.tolist()),
        "ext": sum(table.ext.tolist()),
        "names": Counter(trace.names[i] for i in table.name.tolist()),
    }
