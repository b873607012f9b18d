"""Two runs side by side: parts of a step, communication by key and call site, causes, and one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis.diff.causes import LEAST_SHARE, Cause, causes
from tracekit.analysis.diff.side import PARTS, Mean, band

if TYPE_CHECKING:
    from tracekit.analysis.diff.side import Comm, Side

Row = dict[str, Any]
MOST_SITES = 50
LEAST_NS = 1_000
"""Costs below a microsecond are not told."""


def compare(a: Side, b: Side) -> Row:
    """The comparison as one object; times are means of a rank and step in ns, `change_ns` = b - a.

    `band_ns` is the half-width of the 99 % interval of a change, from the spread over steps; null where a run has one
    step. verdict: same (within the band, or below half a per cent of a step) | more | less | only-a | only-b |
    unknown.
    """
    floor = LEAST_SHARE * (a.window.value or 0)
    found = causes(a, b)
    return {
        "a": _about(a), "b": _about(b),
        "sentence": sentence(a, b, found),
        "causes": [
            {
                "kind": c.kind, "where": c.where, "sentence": c.sentence, "cost_ns": c.cost_ns,
                "cost_ratio": c.cost_ns / a.window.value if c.cost_ns is not None and a.window.value else None,
                "band_ns": c.band_ns,
            }
            for c in found
        ],
        "parts": [{"part": name} | _change(x, y, floor) for name, x, y in _parts(a, b)],
        "communication": _communication(a, b, floor),
        "sites": _sites(a, b),
        "notes": notes(a, b),
    }  # fmt: skip


def _about(one: Side) -> Row:
    return {
        "name": one.name, "ranks": one.ranks, "steps": one.steps, "complete_steps": one.complete,
        "step_ns": one.window.value, "setup": one.setup, "unlabelled_ratio": one.unlabelled_ratio,
    }  # fmt: skip


def _parts(a: Side, b: Side) -> list[tuple[str, Mean, Mean]]:
    return [("step", a.window, b.window), *((p, a.parts[p], b.parts[p]) for p in PARTS)]


def _change(x: Mean, y: Mean, floor: float) -> Row:
    out: Row = {"a_ns": x.value, "b_ns": y.value, "change_ns": None, "change_ratio": None, "band_ns": band(x, y)}
    if x.value is None or y.value is None:
        return out | {"verdict": "unknown"}
    change = y.value - x.value
    out |= {"change_ns": change, "change_ratio": change / x.value if x.value else None}
    same = abs(change) <= max(out["band_ns"] or 0, floor)
    return out | {"verdict": "same" if same else "more" if change > 0 else "less"}


_COLUMNS = {"exposed": "attributed_ns", "hidden": "hidden_ns", "wait": "attributed_wait_ns",
            "transfer": "attributed_transfer_ns"}  # fmt: skip


def _communication(a: Side, b: Side, floor: float) -> list[Row]:
    """One row a strategy, purpose and phase, the largest change first; `exposed` adds up to the part of that name."""
    rows = []
    for key in set(a.comm) | set(b.comm):
        x, y = a.comm.get(key), b.comm.get(key)
        row: Row = {n: v or None for n, v in zip(("strategy", "purpose", "phase"), key, strict=True)}
        row |= {"calls_a": x.calls.value if x else 0.0, "calls_b": y.calls.value if y else 0.0}
        row |= {"payload_a_bytes": x.payload_bytes if x else None, "payload_b_bytes": y.payload_bytes if y else None}
        times = {n: _change(_time(x, c), _time(y, c), floor) for n, c in _COLUMNS.items()}
        row |= times["exposed"] | {n: times[n] for n in ("hidden", "wait", "transfer")}
        row["verdict"] = "only-b" if x is None else "only-a" if y is None else row["verdict"]
        rows.append(row)
    return sorted(
        rows, key=lambda r: (-abs(r["change_ns"] or 0), *(str(r[n]) for n in ("strategy", "purpose", "phase")))
    )


def _time(one: Comm | None, column: str) -> Mean:
    """What a run does not have takes no time; how many steps say so is of no matter."""
    return Mean(0.0, (0.0, 0.0)) if one is None else one.times[column]


def _sites(a: Side, b: Side) -> list[Row]:
    """Call sites of both, the largest change of exposed time first; means over the whole recording."""
    names = ("strategy", "purpose", "phase", "op", "site")
    of = [{tuple(s[n] for n in names): s for s in one.sites} for one in (a, b)]
    rows = []
    for key in set(of[0]) | set(of[1]):
        x, y = of[0].get(key), of[1].get(key)
        row: Row = dict(zip(names, key, strict=True))
        for name, one in (("a", x), ("b", y)):
            row |= {f"calls_{name}": one["calls"] if one else 0.0, f"{name}_ns": one["exposed_ns"] if one else 0.0}
        rows.append(row | {"change_ns": row["b_ns"] - row["a_ns"]})
    return sorted(rows, key=lambda r: (-abs(r["change_ns"]), *(str(r[n]) for n in names)))[:MOST_SITES]


def notes(a: Side, b: Side) -> list[str]:
    """What a reader has to know before comparing."""
    out = []
    if a.ranks != b.ranks:
        out.append(f"{a.ranks} ranks against {b.ranks}: times are means of a rank")
    if a.steps != b.steps and a.steps and b.steps:
        out.append(f"{a.steps} steps against {b.steps}: times are means of a step")
    for name, one in (("A", a), ("B", b)):
        if one.window.value is None:
            out.append(f"{name} has no device activity: nothing of its time can be compared")
        elif not one.markers:
            out.append(f"{name} has no step markers: its whole recording is one step")
        elif not one.complete:
            out.append(f"{name} has fewer than two whole steps: steps that the file may cut are used")
        if one.steps == 1:
            out.append(f"{name} has one step: noise is not known, so a change counts from half a per cent of a step")
        if not one.sites and one.comm:
            out.append(f"{name} does not list call sites (written by an older version)")
        elif one.comm and all(c.times["attributed_wait_ns"].value is None for c in one.comm.values()):
            takes = "that takes several ranks" if one.ranks == 1 else "docs/cross-rank.md says what that takes"
            out.append(f"{name}: waiting and transfer could not be told apart ({takes})")
    shares = (a.unlabelled_ratio, b.unlabelled_ratio)
    if None not in shares and abs((shares[0] or 0) - (shares[1] or 0)) > 0.01:
        out.append(f"without a label: {100 * (shares[0] or 0):.1f} % of A's communication time, "
                   f"{100 * (shares[1] or 0):.1f} % of B's: changes by strategy may be changes of labels")  # fmt: skip
    return out


def sentence(a: Side, b: Side, found: list[Cause]) -> str:
    """What changed, in one sentence."""
    x, y = a.window.value, b.window.value
    if not x or y is None:
        return "The steps cannot be compared: a run has no device activity."
    noise = band(a.window, b.window)
    change = y - x
    small, drowned = abs(change) <= LEAST_SHARE * x, noise is not None and abs(change) <= noise
    spread = f" ±{noise / 1e6:.2g}" if noise else ""
    if small:
        head = f"A step takes as long as before ({x / 1e6:.4g} → {y / 1e6:.4g}{spread} ms)"
    elif drowned:
        head = f"The change of a step is within its noise ({x / 1e6:.4g} → {y / 1e6:.4g}{spread} ms)"
    else:
        how = "more" if change > 0 else "less"
        amount = f"{abs(change) / 1e6:.3g}{spread} ms ({100 * abs(change) / x:.1f} %) {how}"
        head = f"A step takes {y / 1e6:.4g} ms, {amount} than before ({x / 1e6:.4g} ms)"
    if not found:
        return head + (", and nothing else differs." if small or drowned else "; no single cause stands out.")
    first = found[0]
    text = f"{head}: {first.sentence}{_price(first)}"
    measured = next((c for c in found if c.cost_ns is not None), None)
    if first.cost_ns is None and measured is not None:
        text += f"; largest measured change: {measured.sentence}{_price(measured)}"
    return text + "."


def _price(cause: Cause) -> str:
    """` (+6.62 ms)`; nothing where the cost is not known."""
    if cause.cost_ns is None:
        return ""
    if abs(cause.cost_ns) < LEAST_NS:
        return " (at no cost that shows)"
    return f" ({'+' if cause.cost_ns > 0 else '−'}{abs(cause.cost_ns) / 1e6:.3g} ms)"
