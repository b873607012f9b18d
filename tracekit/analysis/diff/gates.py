"""Gates: `METRIC[?] OP LIMIT`, held against one run or against the change between two.

exposed.dp_ratio<0.05     a value; 5% means the same
step_ns<120ms             with a unit: ns, us, ms, s
step_ns<+3%               a change against the other run, relative; needs two runs
idle_ns<=+2ms             a change, absolute
bubble_ns?<5ms            `?`: passes where the metric is not known; without it, that is a failure
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracekit.analysis.diff.metrics import is_known, known, metric
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.analysis.diff.side import Side

_NAME = re.compile(r"[A-Za-z_][\w.|-]*")
_OP = re.compile(r"<=|>=|<|>")
_LIMIT = re.compile(r"([+-]?)(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*(%|ns|us|ms|s|)")
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


class Gate(Struct, frozen=True):
    """One condition; limit in the metric's unit, as a change where `change` (relative to the first run: `relative`)."""

    text: str
    metric: str
    op: str
    limit: float
    change: bool = False
    relative: bool = False
    optional: bool = False


def parse(text: str) -> Gate:
    """Raises UsageError with the position of the mistake."""
    at = _skip(text, 0)
    name = _NAME.match(text, at)
    if not name:
        raise _wrong(text, at, "the name of a metric")
    if not is_known(name[0]):
        raise UsageError(f"--gate {text!r}: no metric {name[0]!r} at position {at + 1}; known are {', '.join(known())}")
    at = _skip(text, name.end())
    optional = text[at : at + 1] == "?"
    at = _skip(text, at + optional)
    op = _OP.match(text, at)
    if not op:
        raise _wrong(text, at, "one of < <= > >=")
    at = _skip(text, op.end())
    limit = _LIMIT.match(text, at)
    if not limit:
        raise _wrong(text, at, "a number, as in 0.05, 3%, 120ms or, as a change, +3%")
    end = _skip(text, limit.end())
    if end != len(text):
        raise _wrong(text, end, "the end")
    return _checked(text, name[0], op[0], limit, optional)


def _skip(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip())


def _wrong(text: str, at: int, expected: str) -> UsageError:
    found = repr(text[at]) if at < len(text) else "the end"
    return UsageError(f"--gate {text!r}: expected {expected} at position {at + 1}, found {found}")


def _checked(text: str, name: str, op: str, limit: re.Match[str], optional: bool) -> Gate:
    """The unit has to suit the metric."""
    sign, number, unit = limit.groups()
    value = float(number) * (-1 if sign == "-" else 1)
    is_time, is_ratio = name.endswith("_ns"), name.endswith("_ratio")
    if unit in _UNITS and not is_time:
        raise UsageError(f"--gate {text!r}: {unit} at position {limit.start(3) + 1} does not suit {name}, no time")
    if unit == "%" and not (sign or is_ratio):
        raise UsageError(
            f"--gate {text!r}: % at position {limit.start(3) + 1}: a change has a sign (+3%), and {name} is no ratio"
        )
    value *= 0.01 if unit == "%" else _UNITS.get(unit, 1.0)
    if not math.isfinite(value):
        raise UsageError(f"--gate {text!r}: the number at position {limit.start() + 1} is too large")
    if is_ratio and abs(value) > 1 and not (sign and unit == "%"):
        raise UsageError(
            f"--gate {text!r}: a ratio is 0 to 1, so {limit[0].strip()} at position {limit.start() + 1} decides nothing"
            + (f"; {number}% is written with %" if not unit else "")
        )
    return Gate(text, name, op, value, bool(sign), bool(sign) and unit == "%", optional)


def alone(gate: Gate) -> Gate:
    """The gate, if one run can answer it; UsageError for a change."""
    if gate.change:
        raise UsageError(f"--gate {gate.text!r}: a change needs two runs: use `tracekit diff A B`")
    return gate


def check(gates: Iterable[Gate], b: Side, a: Side | None = None) -> list[dict[str, Any]]:
    """Each gate's outcome in run b: {gate, metric, value, before, limit, passed, reason}.

    Changes are against run a; UsageError where there is none. An unknown metric fails, unless the gate says `?`.
    """
    out = []
    for gate in gates:
        if a is None:
            alone(gate)
        out.append(_outcome(gate, b, a if gate.change else None))
    return out


def _outcome(gate: Gate, b: Side, a: Side | None) -> dict[str, Any]:
    found, before = metric(b, gate.metric), metric(a, gate.metric) if a is not None else None
    value, reason = found.value, found.reason
    if value is not None and before is not None:
        value, reason = _change(gate, value, before.value, before.reason)
    row: dict[str, Any] = {
        "gate": gate.text, "metric": gate.metric, "value": found.value, "before": before.value if before else None,
        "change": value if before is not None else None, "op": gate.op, "limit": gate.limit,
    }  # fmt: skip
    if value is None:
        return row | {"passed": gate.optional, "reason": f"{gate.metric} is not known: {reason}"}
    passed = {"<": value < gate.limit, "<=": value <= gate.limit, ">": value > gate.limit, ">=": value >= gate.limit}
    return row | {"passed": passed[gate.op], "reason": _said(gate, value, found.value, row["before"])}


def _change(gate: Gate, value: float, before: float | None, reason: str | None) -> tuple[float | None, str | None]:
    if before is None:
        return None, f"in the first run: {reason}"
    if not gate.relative:
        return value - before, None
    if not before:
        return (0.0, None) if not value else (None, "it was 0 in the first run, so there is no relative change")
    return value / before - 1, None


def _said(gate: Gate, value: float, now: float | None, before: float | None) -> str:
    """`step_ns +11.4 % (55.78 → 62.12 ms), wanted < +3 %`."""
    limit = shown(gate, gate.limit)
    if not gate.change:
        return f"{gate.metric} = {shown(gate, value)}, wanted {gate.op} {limit}"
    plain = Gate(gate.text, gate.metric, gate.op, gate.limit)
    both = f"{shown(plain, before or 0)} → {shown(plain, now or 0)}"
    return f"{gate.metric} changes by {shown(gate, value)} ({both}), wanted {gate.op} {limit}"


def shown(gate: Gate, value: float) -> str:
    """A value with a unit that suits it."""
    sign = "+" if gate.change else ""
    if gate.relative:
        return f"{100 * value:{sign}.4g} %"
    if gate.metric.endswith("_ns"):
        return f"{value / 1e6:{sign}.4g} ms"
    return f"{value:{sign}.4g}"
