"""The plan of a layout as text and as a JSON object."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from tracekit.output.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.theory import ExpectedCollective, Plan
    from tracekit.theory.config import Input

_COLUMNS = (
    "strategy", "purpose", "phase", "operation", "axes", "ranks", "nodes", "a layer", "a step", "payload", "wire",
    "least µs", "expected µs", "band µs", "hide at GB/s", "overlap", "what",
)  # fmt: skip
_RIGHT = frozenset(_COLUMNS[5:15])
_NOTES = (
    "ranks of a group; nodes it spans; calls a layer and micro-batch, and a step (by stage where they differ)",
    "payload: full buffer of a call (of a step, marked *, where calls are not known); wire: what one rank sends of it",
    "least: bytes over the links, no latency; in-switch reduction (NVLS) may be faster. * of all calls of a step",
    "hide at: bandwidth from which the compute that may hide the call, run at the dense peak, is long enough",
    "structural: the plain algorithm has nothing to hide it behind",
)


def catalogue(found: dict[str, list[str]]) -> str:
    """Names of models and hardware."""
    return "\n".join(f"{kind:<9} {', '.join(names)}" for kind, names in found.items())


def document(plan: Plan, inputs: Sequence[Input]) -> dict[str, Any]:
    """One JSON object; nulls have their reason under the same name in `reasons`."""
    from tracekit.theory.planning.job import NOT_MODELLED

    b = plan.bubble
    return {
        "inputs": [{"field": i.field, "value": _plain(i.value), "source": i.source} for i in inputs],
        "world_size": plan.job.layout.world_size,
        "collectives": [_row(r) for r in plan.rows],
        "bubble": None if b is None else {
            "schedule": b.schedule, "over_step_ratio": b.over_step_ratio, "over_ideal_ratio": b.over_ideal_ratio,
            "bubble_ns": plan.bubble_ns, "window": b.window, "kind": b.kind, "formula": b.formula,
        },
        "flops": {
            "convention": "causal" if plan.job.training.causal else "not causal", "token_flops": plan.token_flops,
            "tokens_per_step": plan.tokens_per_step, "model_flops": plan.model_flops, "ideal_ns": plan.ideal_ns,
            "hfu_over_mfu": plan.hfu_over_mfu,
        },
        "structural_ns": plan.structural_ns,
        "exposed_if_unhidden_ns": plan.exposed_if_unhidden_ns,
        "mfu_upper_ratio": plan.mfu_upper_ratio,
        "mfu_nothing_hidden_ratio": plan.mfu_nothing_hidden_ratio,
        "reasons": plan.reasons,
        "not_modelled": list(NOT_MODELLED),
    }  # fmt: skip


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


def _row(r: ExpectedCollective) -> dict[str, Any]:
    e = r.expectation
    return {
        "strategy": r.strategy, "purpose": r.purpose, "phase": r.phase, "op": r.op, "axes": r.axes, "what": r.what,
        "group_size": r.group_size, "nodes": r.placement and r.placement.nodes,
        "path": r.placement and r.placement.path, "calls_per_layer": r.per_layer,
        "calls_per_micro_batch": r.per_micro_batch, "calls_per_step": r.per_step, "payload_bytes": r.payload_bytes,
        "wire_bytes": r.wire_bytes, "step_payload_bytes": r.step_payload_bytes, "step_wire_bytes": r.step_wire_bytes,
        "bus_factor": r.bus_factor, "lower_bound_ns": e and e.bound.lower_bound_ns,
        "nvls_bound_ns": e and e.bound.nvls_bound_ns, "limit": e and e.bound.limit,
        "expected_ns": e and e.expected_ns, "expected_low_ns": e and e.low_ns, "expected_high_ns": e and e.high_ns,
        "basis": e and e.basis, "step_lower_bound_ns": r.step_lower_bound_ns, "step_expected_ns": r.step_expected_ns,
        "overlap": r.overlap, "hidden_by": r.hidden_by, "hide_gbps": r.hide_gbps,
        "reasons": {**r.reasons, **({"expected_ns": e.reason} if e and e.reason else {})},
    }  # fmt: skip


def lines(plan: Plan, inputs: Sequence[Input]) -> list[str]:
    """The report: inputs, collectives, bubble, FLOPs, bounds, what is missing."""
    out = ["inputs (* by default, ° from the catalogue)", *_inputs(inputs), ""]
    if plan.rows:
        out += ["expected collectives of one rank", *_grid([_cells(r) for r in plan.rows]), *_NOTES]
    else:
        out.append("no collectives: one rank on every axis, or none could be listed")
    out += ["", *_totals(plan)]
    missing = _missing(plan)
    return [*out, "", "missing", *missing] if missing else out


def _inputs(inputs: Sequence[Input]) -> list[str]:
    mark = {"default": "*", "catalogue": "°", "given": ""}
    groups: dict[str, list[str]] = {}
    for i in inputs:
        where, name = i.field.split(".", 1)
        groups.setdefault(where, []).append(f"{name}={clean(_value(i.value))}{mark[i.source]}")
    return [f"  {where:<9} {' '.join(parts)}" for where, parts in groups.items()]


def _value(value: Any) -> str:
    plain = _plain(value)
    if isinstance(plain, dict):
        return "{" + ",".join(f"{k}={v}" for k, v in plain.items()) + "}"
    return "-".join(plain) if isinstance(plain, list) else str(plain)


def _cells(r: ExpectedCollective) -> tuple[str, ...]:
    e = r.expectation
    payload, wire = _bytes(r.payload_bytes), _bytes(r.wire_bytes)
    if r.payload_bytes is None and r.step_payload_bytes is not None:
        payload, wire = _bytes(max(r.step_payload_bytes)) + "*", _bytes(max(r.step_wire_bytes or (0,))) + "*"
    least, expected = _us(e.bound.lower_bound_ns if e else None), _us(e.expected_ns if e else None)
    if e is None and r.step_lower_bound_ns is not None:
        least = _us(max(r.step_lower_bound_ns)) + "*"
        expected = _us(max(r.step_expected_ns)) + "*" if r.step_expected_ns else "–"
    band = "–" if e is None or e.low_ns is None or e.high_ns is None else f"{_us(e.low_ns)}–{_us(e.high_ns)}"
    return (
        r.strategy, r.purpose, r.phase, r.op, r.axes, str(r.group_size), str(r.placement.nodes) if r.placement else "–",
        "–" if r.per_layer is None else str(r.per_layer), _stages(r.per_step), payload, wire,
        least, expected, band,
        "–" if r.hide_gbps is None else f"{r.hide_gbps:,.1f}", r.overlap, r.what,
    )  # fmt: skip


def _stages(values: tuple[int, ...] | None) -> str:
    if values is None:
        return "–"
    if len(set(values)) == 1:
        return f"{values[0]:,}"
    return ",".join(map(str, values)) if len(values) <= 4 else f"{min(values):,}–{max(values):,}"


def _bytes(value: int | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value} B"


def _us(ns: float | None) -> str:
    if ns is None:
        return "–"
    return f"{ns / 1e3:,.0f}" if ns >= 1e5 else f"{ns / 1e3:.1f}"


def _grid(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(c), *(len(r[i]) for r in rows)) for i, c in enumerate(_COLUMNS)]
    out = []
    for row in [_COLUMNS, *rows]:
        cells = zip(row, widths, _COLUMNS, strict=True)
        out.append("  ".join(c.rjust(w) if n in _RIGHT else c.ljust(w) for c, w, n in cells).rstrip())
    return out


def _totals(plan: Plan) -> list[str]:
    b, out = plan.bubble, []
    if b is not None:
        ms = "" if plan.bubble_ns is None else f", {plan.bubble_ns / 1e6:,.1f} ms at the dense peak"
        out.append(
            f"bubble    {b.schedule}: {100 * b.over_step_ratio:.2f} % of the step, {100 * b.over_ideal_ratio:.2f} % of "
            f"the ideal time{ms} ({b.window} window, {b.kind}: {b.formula})"
        )
    if plan.token_flops is not None:
        convention = "causal" if plan.job.training.causal else "not causal"
        out.append(f"FLOPs     {plan.token_flops / 1e9:,.3f} GFLOP a token to train, attention {convention}")
    if plan.model_flops is not None and plan.tokens_per_step is not None:
        ideal = "" if plan.ideal_ns is None else f", {plan.ideal_ns / 1e6:,.1f} ms at the dense peak"
        out.append(f"          {plan.tokens_per_step:,} tokens and {plan.model_flops / 1e15:,.2f} PFLOP a step{ideal}")
    for name, value, text in (
        ("upper", plan.mfu_upper_ratio, "peak compute, bubble, structural communication at its least time"),
        ("nothing hidden", plan.mfu_nothing_hidden_ratio, "best GEMM rate, bubble, all communication as expected"),
    ):
        if value is not None:
            out.append(f"MFU       {100 * value:.1f} % {name}: {text}; other kernels cost nothing")
    return out


def _missing(plan: Plan) -> list[str]:
    found: dict[str, list[str]] = {}
    for name, reason in plan.reasons.items():
        found.setdefault(reason, []).append(name)
    for r in plan.rows:
        for name, reason in r.reasons.items():
            found.setdefault(reason, []).append(f"{name} of {r.strategy} {r.op}")
    return [f"  {clean(reason)}: {_few(list(dict.fromkeys(names)))}" for reason, names in found.items()]


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
