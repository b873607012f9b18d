"""Findings of the comparison with theory; each code is described in docs/findings.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.analysis.expected.calls import Recording

Row = dict[str, Any]
_MARGIN = 1.001
SLOW = 0.1
"""Share of a row's time beyond the band from which on it is a finding."""


def findings_of(rows: Sequence[Row]) -> list[Row]:
    """Findings of rows of `theory`."""
    return [*_above(rows), *_slow(rows), *_off_plan(rows)]


def finding(severity: str, code: str, message: str, **more: Any) -> Row:
    """One row of `findings`; `more`: its measured columns."""
    return {"severity": severity, "code": code, "rank": None, "message": message, **more}


def _what(r: Row) -> str:
    return " ".join(str(r[n]) for n in ("strategy", "purpose", "phase", "op") if r[n])


def _by_role(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows of groups with the same role together."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for r in rows:
        found.setdefault((r["strategy"], r["purpose"], r["phase"], r["op"], r["path"]), []).append(r)
    return list(found.values())


def _where(rows: Sequence[Row]) -> str:
    groups = [str(r["group_id"]) for r in rows if r["group_id"]]
    return ("group " if len(groups) == 1 else f"{len(groups)} groups: ") + ", ".join(groups[:4]) if groups else ""


def _above(rows: Sequence[Row]) -> list[Row]:
    """Bus bandwidth above what the links, or NCCL's rings on them, can do."""
    out = []
    fast = [r for r in rows if r["busbw_max_gbps"] and r["limit_gbps"] and r["path"] == "intra"]
    for same in _by_role(r for r in fast if r["busbw_max_gbps"] > _MARGIN * (r["ceiling_gbps"] or r["limit_gbps"])):
        top = max(same, key=lambda r: r["busbw_max_gbps"])
        over = top["busbw_max_gbps"] > _MARGIN * top["limit_gbps"]
        link = "the links" if over or not top["ceiling_gbps"] else "NCCL's rings reach on them"
        limit = top["limit_gbps"] if over or not top["ceiling_gbps"] else top["ceiling_gbps"]
        why = (
            "in-switch reduction (NVLS) sends less than a ring" if top["op"] == "all_reduce"
            else "a ring cannot: check size, group and times"
        )  # fmt: skip
        out.append(
            finding(
                "warning" if over and top["op"] != "all_reduce" else "info", "busbw-above-ceiling",
                f"{_what(top)}: bus bandwidth up to {top['busbw_max_gbps']:,.0f} GB/s, above the {limit:,.0f} GB/s of "
                f"{link}; {why}",
                where=_where(same), measured=top["busbw_max_gbps"], expected=limit, unit="GB/s",
            )
        )  # fmt: skip
    return out


def _slow(rows: Sequence[Row]) -> list[Row]:
    """Transfers that take longer than the band allows."""
    out = []
    for same in _by_role(r for r in rows if r["verdict"] == "below_limit" and r["over_ns"] > SLOW * r["measured_ns"]):
        top = max(same, key=lambda r: r["over_ns"])
        out.append(
            finding(
                "warning", "slower-than-expected",
                f"{_what(top)}: transfers take {top['ratio']:.1f} × the expected time (busbw {top['busbw_gbps']:,.1f} "
                f"of {top['ceiling_gbps'] or top['limit_gbps']:,.0f} GB/s, {top['path']})",
                where=_where(same), cost_ns=top["over_ns"], measured=top["measured_ns"] / 1e6,
                expected=top["expected_ns"] / 1e6, unit="ms",
                evidence=f"{top['calls']} calls, transfer = shortest duration of the ranks; band up to "
                f"{top['high_ns'] / 1e6:.3f} ms a step",
                advice="compare with nccl-tests on the same nodes; NCCL_DEBUG=INFO shows rings, protocol, adapters",
                confidence=0.7 if top["basis"] == "transfer" else 0.4,
            )
        )  # fmt: skip
    return out


def _off_plan(rows: Sequence[Row]) -> list[Row]:
    """Calls or bytes that are not those of the plan."""
    out = []
    for same in _by_role(r for r in rows if r["plan"] == "differs"):
        top = max(same, key=lambda r: r["exposed_ns"] or 0)
        calls = top["expected_calls_per_step"]
        bytes_ = top["expected_step_payload_bytes"]
        by_calls = calls is not None and calls != top["calls_per_step"]
        out.append(
            finding(
                "warning", "differs-from-plan", f"{_what(top)}: {top['plan_note']}", where=_where(same),
                measured=top["calls_per_step"] if by_calls else float(top["step_payload_bytes"]),
                expected=calls if by_calls else bytes_, unit="calls a step" if by_calls else "bytes a step",
                evidence="plan from [model], [training] and the layout against the calls of complete steps",
                advice="check [model] and [training]; if they are right, the job does not do what it is set to do",
                confidence=0.8,
            )
        )  # fmt: skip
    return out


AVOIDABLE, STRUCTURAL = 0.01, 0.05
"""Shares of a step from which on exposed time that could, or could not, be hidden is a finding."""
_TRY = {
    "grad_reduce": "reduce buckets while the backward runs (overlap_grad_reduce, DDP buckets, FSDP prefetch); check"
    " that the first bucket starts with the backward and that several hardware queues are allowed",
    "param_gather": "gather ahead (overlap_param_gather, FSDP forward and backward prefetch, a smaller first group)",
    "activation": "overlap the backward all-reduce with the weight-gradient GEMM; split GEMM and call (asynchronous TP,"
    " userbuffers) for the forward",
    "kv_exchange": "start the next block's exchange before this block's attention; more tokens a rank",
    "token_dispatch": "run two micro-batches against each other (two-batch overlap, DualPipe)",
    "token_combine": "run two micro-batches against each other (two-batch overlap, DualPipe)",
}


def exposure_findings(recordings: Sequence[Recording]) -> list[Row]:
    """Exposed time by strategy, purpose and phase: what could be hidden, and what the algorithm leaves exposed."""
    rows: list[Row] = []
    windows: list[int] = []
    ranks: dict[tuple[Any, ...], dict[int | None, int]] = {}
    for one in recordings:
        steps = one.counted_steps
        mine = [r for r in one.exposure if r["step"] in steps and r.get("avoidable_ns") is not None]
        rows += mine
        windows += [b["window_ns"] for b in one.breakdown if b["step"] in steps]
        for r in mine:
            per_rank = ranks.setdefault(_role(r), {})
            per_rank[one.rank] = per_rank.get(one.rank, 0) + r["avoidable_ns"]
    n, whole = len(windows), sum(windows)
    found: dict[tuple[Any, ...], list[Row]] = {}
    for r in rows:
        found.setdefault(_role(r), []).append(r)
    out = []
    for role, same in found.items():
        sums = {k: sum(r[k] or 0 for r in same) for k in _PARTS}
        if whole and sums["avoidable_ns"] >= AVOIDABLE * whole:
            worst = max(ranks[role], key=lambda k: ranks[role][k])
            out.append(_exposed("warning", "avoidable-exposure", role, same[0], sums, n, whole, worst))
        elif whole and sums["structural_ns"] >= STRUCTURAL * whole:
            out.append(_exposed("info", "structural-exposure", role, same[0], sums, n, whole, None))
    return out


_PARTS = ("attributed_ns", "attributed_wait_ns", "avoidable_ns", "structural_ns", "unknown_ns")


def _role(r: Row) -> tuple[Any, ...]:
    return (r["strategy"], r["purpose"], r["phase"])


def _exposed(
    severity: str, code: str, role: tuple[Any, ...], row: Row, sums: Row, n: int, whole: int, worst: int | None
) -> Row:
    """sums: ns over n windows (a rank and step each) of `whole` ns together."""
    name = " ".join(str(x) for x in role if x)
    part = "avoidable_ns" if code == "avoidable-exposure" else "structural_ns"
    wait = sums["attributed_wait_ns"]
    amount = f"{sums[part] / n / 1e6:.2f} ms of a step ({100 * sums[part] / whole:.1f} %)"
    text = (
        f"{name}: up to {amount} exposed that could be hidden" if part == "avoidable_ns"
        else f"{name}: {amount} exposed by the algorithm"
    )  # fmt: skip
    text += f": {row['overlap']}" if row["overlap"] else ""
    return finding(
        severity, code, text, where="" if worst is None else f"most on rank {worst}",
        cost_ns=round((sums["attributed_ns"] - wait) / n), avoidable_ns=round(sums["avoidable_ns"] / n),
        measured=(sums["attributed_ns"] - wait) / n / 1e6, expected=sums["structural_ns"] / n / 1e6, unit="ms",
        evidence=f"exposed a rank and step {sums['attributed_ns'] / n / 1e6:.2f} ms: avoidable "
        f"{sums['avoidable_ns'] / n / 1e6:.2f}, structural {sums['structural_ns'] / n / 1e6:.2f}, unknown "
        f"{sums['unknown_ns'] / n / 1e6:.2f}, waiting {wait / n / 1e6:.2f}",
        advice=_TRY.get(role[1] or ""), confidence=0.6,
    )  # fmt: skip
