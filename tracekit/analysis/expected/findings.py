"""Findings of the comparison with theory; each code is described in docs/findings.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = dict[str, Any]
_MARGIN = 1.001
SLOW = 0.1
"""Share of a row's time beyond the band from which on it is a finding."""


def findings_of(rows: Sequence[Row]) -> list[Row]:
    """Findings of rows of `theory`."""
    return [*_above(rows), *_slow(rows)]


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
