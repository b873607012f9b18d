"""Ascend's `communication.json` (msprof, torch_npu, MindSpore) → `Witness`: operations with their times and waiting.

The file lists steps, in each the collectives and the point-to-point calls by name ("hcom_allReduce__844_1_1@1368…":
operation, a count, and behind the @ the group), with the start on the Unix clock, the whole duration and the parts of
it. It tells what went over each kind of link, not the size of the call, and neither members of groups nor the rank.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import BrokenInput, UnusableInput
from tracekit.model import HealthEntry, TraceMeta, Witness, WitnessCall, WitnessGroup
from tracekit.parsers.convert import MAX_DUR_NS, MAX_US
from tracekit.parsers.source import whole

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "msprof"
MAX_BYTES = 1 << 30
_NAME = re.compile(r"(?:hcom_)?([A-Za-z]+)[^@]{0,200}(?:@(\S{1,200}))?")
_TOTAL = "Total Op Info"
_PARTS = {"Transit Time(ms)": "transit_ns", "Wait Time(ms)": "wait_ns",
          "Synchronization Time(ms)": "synchronization_ns", "Idle Time(ms)": "idle_ns"}  # fmt: skip
_P2P = frozenset({"send", "receive", "recv"})
_FIX = "parse the recording again with msprof or torch_npu"
_KINDS = ("collective", "p2p")
_US, _MS = 1_000, 1_000_000
_LONGEST = 40


class _Op(msgspec.Struct):
    """What the file says of one operation; numbers may be quoted."""

    time: dict[str, Any] = msgspec.field(default_factory=dict, name="Communication Time Info")
    links: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict, name="Communication Bandwidth Info")


def parse(path: Path, *, strict: bool = False) -> list[Witness]:
    """Read one file: one process. strict: refuse operations without a usable time instead of counting them.

    Raises BrokenInput for damage, LimitExceeded, UnusableInput when it holds no operation.
    """
    data, source = whole(path, MAX_BYTES, "record fewer steps", _FIX)
    calls: list[WitnessCall] = []
    lost: list[str] = []
    try:
        steps = msgspec.json.decode(data, type=dict[str, dict[str, dict[str, _Op]]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise BrokenInput(f"{path}: no whole communication.json ({str(e)[:160]}); {_FIX}") from e
    for step, kinds in steps.items():
        for kind in _KINDS:
            for name, op in kinds.get(kind, {}).items():
                if name.startswith(_TOTAL):
                    continue
                call = _call(name, op, step, kind)
                if call is None:
                    lost.append(name)
                else:
                    calls.append(call)
    if not calls:
        raise UnusableInput(f"{path}: no operation with a time below 'collective' or 'p2p' of any step; {_FIX}")
    if lost and strict:
        raise BrokenInput(f"{path}: {len(lost)} operations without a usable time ({lost[0][:80]}); {_FIX}")
    calls.sort(key=lambda c: (c.started_ns or 0, c.op_raw))
    meta = TraceMeta(
        str(path), file_bytes=source.file_bytes, json_bytes=len(data), compression=source.compression, backend="hccl",
        era="Ascend communication.json",
    )  # fmt: skip
    keys = dict.fromkeys(c.group for c in calls if c.group is not None)
    out = Witness(meta, SOURCE, [WitnessGroup(k, k, backend="hccl") for k in keys], calls)
    if lost:
        out.health.append(HealthEntry("operations without a usable time", len(lost), "lost", lost[0][:120]))
    return [out]


def _call(name: str, op: _Op, step: str, kind: str) -> WitnessCall | None:
    found = _NAME.match(name)
    start, length = _ns(op.time.get("Start Timestamp(us)"), _US), _ns(op.time.get("Elapse Time(ms)"), _MS)
    if found is None or start is None or length is None or start <= 0 or not 0 <= length <= MAX_DUR_NS:
        return None
    extra: dict[str, Any] = {"name": name[:200], "step": step[:60]}
    for key, column in _PARTS.items():
        if (value := _ns(op.time.get(key), _MS)) is not None and value >= 0:
            extra[column] = value
    sent = {link: size for link, told in op.links.items() if (size := _megabytes(told.get("Transit Size(MB)")))}
    if sent:
        extra["transit_bytes"] = sent
    return WitnessCall(
        found[1], found[2], is_p2p=kind == "p2p" or found[1].lower() in _P2P, started_ns=start,
        completed_ns=start + length, dur_ns=length, extra=extra,
    )  # fmt: skip


def _ns(value: Any, unit: int) -> int | None:
    """A number, bare or quoted, of units of so many ns, as ns; None for none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > _LONGEST:
        return None
    try:
        found = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return int((found * unit).to_integral_value()) if found.is_finite() and abs(found) < MAX_US else None


def _megabytes(value: Any) -> int | None:
    """Bytes of decimal megabytes; None for none."""
    found = _ns(value, _MS)
    return found if found is not None and found > 0 else None
