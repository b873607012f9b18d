"""What a file says of itself outside its events: identity, groups, devices, clock base."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from tracekit.model import ProcessGroup, TraceMeta
from tracekit.parsers.convert import as_int
from tracekit.parsers.repair import LADDER, MAX_PIECE

_KEY = re.compile(r'(?:\s*,)?\s*"((?:[^"\\]|\\.)*)"\s*:\s*')
_NEXT_KEY = re.compile(r',\s{0,64}(?="[A-Za-z_][\w .-]{0,80}"\s{0,8}:)')
_DECODER = json.JSONDecoder(strict=False)
MAX_EXTRA_CHARS = 4096
MAX_OWN_CHARS = 4 << 20
MAX_WORLD = 1 << 24
"""Ranks of the largest world that is believed."""
MAX_BASE_NS = 4 * 10**18
"""Unix ns in the year 2096."""
MAX_GROUPS = 100_000

_KNOWN = frozenset(
    {
        "schemaVersion", "deviceProperties", "computeProperties", "distributedInfo", "displayTimeUnit",
        "baseTimeNanoseconds", "traceName", "host_name", "traceEvents", "PT_PROFILER_JOB_NAME",
        "PT_PROFILER_JOB_VERSION", "PT_PROFILER_JOB_ATTEMPT_INDEX",
    }
)  # fmt: skip


Odd = list[tuple[str, str, str]]
"""(severity, reason, key) of what was not as it should be."""


def read_pairs(head: bytes, tail: bytes) -> tuple[dict[str, Any], dict[str, Any], Odd]:
    """Key-value pairs before and after the events, and what could not be read or came twice."""
    odd: Odd = []
    return _pairs(head, odd), _pairs(tail, odd), odd


def _pairs(data: bytes, odd: Odd) -> dict[str, Any]:
    """Read `"key": value` one at a time, so that one bad value costs only itself; the last of two wins."""
    text = data.decode("utf-8", "replace")
    if "\ufffd" in text and b"\xef\xbf\xbd" not in data:
        odd.append(("repaired", "metadata with bytes that are not UTF-8", text[:40]))
    pairs: dict[str, Any] = {}
    at = len(text) - len(text.lstrip("\ufeff \t\r\n{"))
    while at < len(text):
        found = _KEY.match(text, at)
        if not found:
            follow = _NEXT_KEY.search(text, at)
            if not follow:
                break
            odd.append(("lost", "text between metadata keys that is not JSON", text[at : at + 120]))
            at = follow.start()
            continue
        key, start = found[1], found.end()
        if key == "traceEvents":
            break
        try:
            value, at = _DECODER.raw_decode(text, start)
            if text[at : at + 64].lstrip()[:1] not in ("", ",", "}"):
                raise ValueError("a value is followed by neither comma nor brace")
        except (ValueError, RecursionError):
            follow = _NEXT_KEY.search(text, start)
            at = follow.start() if follow else len(text)
            value = _repaired(text[start:at])
            if value is None:
                odd.append(("lost", "metadata value that is not valid JSON", key[:200]))
                continue
            odd.append(("repaired", "metadata value repaired", key[:200]))
        if key in pairs:
            odd.append(("info", "metadata key given twice (the last counts)", key[:200]))
        pairs[key] = value
    return pairs


def _repaired(text: str) -> Any:
    if len(text) > MAX_PIECE:
        return None
    piece = b'{"v": ' + text.strip().removesuffix("}").rstrip().encode() + b"}"
    for _, repair in LADDER:
        piece = repair(piece)
        try:
            return json.loads(piece)["v"]
        except (ValueError, RecursionError):
            continue
    return None


def _rank_tuple(value: Any) -> tuple[int, ...] | None:
    """Global ranks of a group from a list, or from a complete list in text; None if cut or absent."""
    if isinstance(value, str):
        if "..." in value:
            return None
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if not isinstance(value, list | tuple) or not value:
        return None
    ranks = [as_int(v) for v in value]
    return None if None in ranks else tuple(r for r in ranks if r is not None)


def _groups(info: dict[str, Any]) -> tuple[ProcessGroup, ...]:
    config = info.get("pg_config")
    if isinstance(config, dict):
        config = list(config.values())
    if not isinstance(config, list):
        return ()
    groups = []
    for item in config[:MAX_GROUPS]:
        if not isinstance(item, dict) or item.get("pg_name") is None:
            continue
        ranks = _rank_tuple(item.get("ranks"))
        desc = item.get("pg_desc")
        groups.append(
            ProcessGroup(
                name=str(item["pg_name"]),
                desc=None if desc is None else str(desc),
                size=as_int(item.get("pg_size")) or (len(ranks) if ranks else None),
                ranks=ranks,
                backend=None if item.get("backend_config") is None else str(item["backend_config"]),
            )
        )
    return tuple(groups)


def _synthesised(info: dict[str, Any], after: bool) -> bool:
    """On-demand captures write distributedInfo after the events, with ranks as text and no version."""
    config = info.get("pg_config")
    texts = isinstance(config, list) and any(isinstance(c, dict) and isinstance(c.get("ranks"), str) for c in config)
    return after and (texts or info.get("nccl_version") == "unknown")


def _within(value: Any, low: int, high: int) -> int | None:
    """The integer if it can be what it claims; damaged metadata holds numbers beyond all worlds and times."""
    number = None if isinstance(value, bool) else as_int(value)
    return number if number is not None and low <= number < high else None


def apply(meta: TraceMeta, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Fill `meta` from the pairs before and after the events."""
    pairs = {**after, **before}
    info = pairs.get("distributedInfo")
    if isinstance(info, dict):
        meta.rank = _within(info.get("rank"), 0, MAX_WORLD)
        meta.world_size = _within(info.get("world_size"), 1, MAX_WORLD)
        meta.backend = None if info.get("backend") is None else str(info["backend"])
        meta.nccl_version = None if info.get("nccl_version") is None else str(info["nccl_version"])
        meta.pg_count = as_int(info.get("pg_count"))
        meta.groups = _groups(info)
        meta.on_demand = _synthesised(info, "distributedInfo" not in before)
    devices = pairs.get("deviceProperties", pairs.get("computeProperties"))
    if isinstance(devices, list):
        meta.devices = tuple(d for d in devices[:64] if isinstance(d, dict))
    meta.base_ns = _within(pairs.get("baseTimeNanoseconds"), 0, MAX_BASE_NS)
    meta.host_name = None if pairs.get("host_name") is None else str(pairs["host_name"])
    meta.job_name = None if pairs.get("PT_PROFILER_JOB_NAME") is None else str(pairs["PT_PROFILER_JOB_NAME"])
    meta.attempt = as_int(pairs.get("PT_PROFILER_JOB_ATTEMPT_INDEX"))
    meta.extra = {k: v for k, v in pairs.items() if k not in _KNOWN and _kept(k, v)}


def _kept(key: str, value: Any) -> bool:
    """Small values of any key, and whatever tracekit's own recorder wrote."""
    return len(str(value)) <= (MAX_OWN_CHARS if key.startswith("tracekit") else MAX_EXTRA_CHARS)


def era(before: dict[str, Any], after: dict[str, Any], categories: set[str], *, fractional_epoch: bool) -> str:
    """Which generation of writer made the file; no file states it (signs: Kineto's history)."""
    if fractional_epoch:
        return "torch nightly of 2024"
    if categories & {"Operator", "Kernel", "Runtime", "Memcpy"}:
        return "torch 1.8-1.11"
    if "baseTimeNanoseconds" in before:
        return "torch>=2.12" if "host_name" in before else "torch>=2.7"
    if "baseTimeNanoseconds" in after:
        return "torch 2.4-2.6"
    return "torch 1.12-2.3"
