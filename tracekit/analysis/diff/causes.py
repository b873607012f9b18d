"""What brings a difference about: set-up, load, compute of single ranks, slower transfers, lost overlap.

Waiting is an effect: where a rank computes longer, all others wait for it. It becomes a cause only where nothing else
explains it. Costs are ns of a step, positive where the second run pays.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from msgspec import Struct

from tracekit.analysis.diff.side import Mean, band

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.analysis.diff.side import Comm, Key, Side

LEAST_SHARE = 0.005
"""Of a step: what costs less is no finding, even where the noise is smaller."""
SAME = 0.01
"""Counts, bytes and rates that differ by less are the same."""
PER_MICRO_BATCH = frozenset({"tp", "sp", "pp", "cp", "ep", "etp"})
"""Strategies whose messages are activations, so that they grow with what a step is fed."""
_SAID = {"layout": "layout", "hardware": "hardware", "framework": "framework", "schedule": "pipeline schedule",
         "stages": "pipeline stages", "micro-batches": "micro-batches", "strategies": "strategies"}  # fmt: skip


class Cause(Struct, frozen=True):
    """One cause. kind: setup | load | payload | calls | compute | rank | stage | transfer | overlap | idle | copy |
    fused | waiting. cost_ns None: what it costs cannot be told apart from the rest. band_ns None: noise not known.
    """

    kind: str
    where: str
    sentence: str
    cost_ns: float | None
    band_ns: float | None = 0.0


def causes(a: Side, b: Side) -> list[Cause]:
    """Set-up first, since it may explain all the rest; then the dearest first."""
    setup = _setup(a, b)
    floor = LEAST_SHARE * (a.window.value or 0)
    common, measured = _compute(a, b, floor)
    if {c.where for c in setup} & {"layout", "strategies", "stages"}:
        measured = []  # a rank has another part of the work
    loads = _loads(a, b, common)
    if loads and common is not None and any(c.kind == "load" for c in loads):
        common = None
    moved = _transfers(a, b)
    overlap = [c for c in _overlap(a, b) if not _follows(c, moved, [*loads, *measured, *([common] if common else [])])]
    found = [*loads, *([common] if common else []), *measured, *moved, *overlap, *_rest(a, b)]
    kept = [c for c in found if _counts(c, floor) or c.kind in ("payload", "calls", "load")]
    waiting = _waiting(a, b)
    if waiting and _counts(waiting, floor) and not _explained(waiting, [*setup, *kept]):
        kept.append(waiting)
    return [*setup, *sorted(kept, key=lambda c: (-abs(c.cost_ns or 0), c.kind, c.where))]


def _counts(cause: Cause, floor: float) -> bool:
    return cause.cost_ns is not None and abs(cause.cost_ns) > max(floor, cause.band_ns or 0)


def _explained(waiting: Cause, others: Iterable[Cause]) -> bool:
    others = list(others)
    least = abs(waiting.cost_ns or 0) / 4
    return any(c.kind == "setup" or abs(c.cost_ns or 0) >= least for c in others)


def _follows(overlap: Cause, transfers: Iterable[Cause], compute: Iterable[Cause]) -> bool:
    """Whether a hidden share changed because transfers outgrew compute, or compute changed, or a rank came late."""
    least, strategy = abs(overlap.cost_ns or 0), overlap.where.split()[0]
    slower = any(c.where.split()[0] == strategy and abs(c.cost_ns or 0) >= least for c in transfers)
    return slower or any(abs(c.cost_ns or 0) >= least for c in compute)


def _setup(a: Side, b: Side) -> list[Cause]:
    """What the files say of how the jobs are set up, where both say it."""
    out = []
    of = [{**s.setup, "strategies": " ".join(_strategies(s))} for s in (a, b)]
    for name, said in _SAID.items():
        first, second = of[0].get(name), of[1].get(name)
        if first and second and first != second:
            out.append(Cause("setup", name, f"{said} {first} → {second}", None))
    return out


def _strategies(one: Side) -> list[str]:
    return sorted({k[0] for k in one.comm} - {"unknown", "housekeeping", "conflict"})


def _compute(a: Side, b: Side, floor: float) -> tuple[Cause | None, list[Cause]]:
    """(what all ranks have in common, what single ranks or stages have more of).

    The common ratio is the one closest to 1 among all ranks, so that nobody's excess is put down to the others.
    """
    same = set(a.compute_of) == set(b.compute_of) and None not in a.compute_of
    ratios = {r: y / x for r in a.compute_of if same and (x := a.compute_of[r].value) and (y := b.compute_of[r].value)}
    if not ratios:
        return _all_alike(a.parts["compute"], b.parts["compute"]), []
    loaded = _load_ratio(a, b) is not None
    base = {r: _nearest(ratios, [q for q in ratios if not loaded or a.position.get(q) == a.position.get(r)])
            for r in ratios}  # fmt: skip
    shared = sum((a.compute_of[r].value or 0) * (base[r] - 1) for r in ratios) / len(ratios)
    common = None
    if abs(shared) > 0:
        ratio = statistics.fmean(base.values())
        common = Cause("compute", "all ranks", f"compute takes {_percent(ratio - 1)} on all ranks", shared,
                       band(a.parts["compute"], b.parts["compute"]))  # fmt: skip
    excess = {r: (b.compute_of[r].value or 0) - base[r] * (a.compute_of[r].value or 0) for r in ratios}
    most = max(excess.values(), key=abs)
    noise = {r: band(a.compute_of[r], b.compute_of[r]) for r in ratios}
    out = [r for r, e in excess.items() if e * most > 0 and abs(e) > max(floor, abs(most) / 3, noise[r] or 0)]
    if not out:
        return common, []
    share = statistics.fmean(ratios[r] / base[r] for r in out) - 1
    kind, who = _named(a, sorted(out), len(ratios))
    verb = "computes" if len(out) == 1 or kind == "stage" else "compute"
    sentence = f"{who} {verb} {_percent(share)}"
    if kind == "stage":
        sentence += f" (rank{'s' if len(out) > 1 else ''} {_list(sorted(out))})"
    return common, [Cause(kind, who, sentence, most, max((noise[r] or 0) for r in out))]


def _nearest(ratios: dict[object, float], ranks: list[object]) -> float:
    values = [ratios[r] for r in ranks]
    return min(max(1.0, min(values)), max(values))


def _all_alike(x: Mean, y: Mean) -> Cause | None:
    if not x.value or y.value is None or x.value == y.value:
        return None
    return Cause("compute", "mean of ranks", f"compute takes {_percent(y.value / x.value - 1)} in the mean of a rank",
                 y.value - x.value, band(x, y))  # fmt: skip


def _named(a: Side, ranks: list[int], of: int) -> tuple[str, str]:
    """A stage where the ranks are all of it, a host where they are all of it, else the ranks."""
    places = {a.position.get(r) for r in ranks}
    if len(places) == 1 and (place := places.pop()) is not None and len(set(a.position.values())) > 1:
        whole = sorted(r for r, p in a.position.items() if p == place)
        if whole == ranks and (len(ranks) > 1 or of == len(set(a.position.values()))):
            return "stage", f"pipeline stage {place}"
    hosts = {a.hosts.get(r) for r in ranks}
    host = hosts.pop() if len(hosts) == 1 and len(set(a.hosts.values())) > 1 else None
    if host and len(ranks) > 1 and sorted(r for r, h in a.hosts.items() if h == host) == ranks:
        return "rank", f"host {host} (ranks {_list(ranks)})"
    return "rank", f"rank{'s' if len(ranks) > 1 else ''} {_list(ranks)}"


def _list(ranks: list[int]) -> str:
    text = ", ".join(map(str, ranks[:8]))
    return text + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _pairs(a: Side, b: Side) -> list[tuple[Key, Comm, Comm]]:
    return [(k, a.comm[k], b.comm[k]) for k in sorted(set(a.comm) & set(b.comm))]


def _ratio(x: float | None, y: float | None) -> float | None:
    return y / x if x and y else None


def _load_ratio(a: Side, b: Side) -> tuple[str, float] | None:
    """(calls | bytes, ratio) where the messages of activations are more, or larger, by one factor."""
    pairs = [(x, y) for k, x, y in _pairs(a, b) if k[0] in PER_MICRO_BATCH and k[1] != "metric"]
    for what, values in (
        ("bytes", [_ratio(x.payload_bytes, y.payload_bytes) for x, y in pairs]),
        ("calls", [_ratio(x.calls.value, y.calls.value) for x, y in pairs]),
    ):
        known = [v for v in values if v is not None]
        if known and abs(statistics.median(known) - 1) > SAME:
            return what, statistics.median(known)
    return None


def _loads(a: Side, b: Side, common: Cause | None) -> list[Cause]:
    """More calls, or larger ones: of activations together with the compute that goes with them, else key by key."""
    load = _load_ratio(a, b)
    out = []
    if load is not None:
        what, ratio = load
        both = common is not None and ((common.cost_ns or 0) > 0) == (ratio > 1)
        told = f"activations are sent {_times(ratio)} as often" if what == "calls" else (
            f"each call that sends activations moves {_times(ratio)} the bytes"
        )  # fmt: skip
        told += f", and {common.sentence}" if both and common else ""
        moved = sum(_more(ratio, _moved(x, y)) for k, x, y in _pairs(a, b) if k[0] in PER_MICRO_BATCH)
        cost = moved + ((common.cost_ns or 0) if both and common else 0)
        kind = "load" if both else {"bytes": "payload"}.get(what, what)
        out.append(Cause(kind, "activations", told, cost))
    for key, x, y in _pairs(a, b):
        if (load is not None and key[0] in PER_MICRO_BATCH) or key[0] == "housekeeping":
            continue
        size, often = _ratio(x.payload_bytes, y.payload_bytes), _ratio(x.calls.value, y.calls.value)
        if size is not None and abs(size * (often or 1) - 1) > SAME:
            ratio = size * (often or 1)
            out.append(Cause("payload", _place(key), f"{_place(key)} moves {_times(ratio)} the bytes",
                             _more(ratio, _moved(x, y))))  # fmt: skip
        elif size is None and often is not None and abs(often - 1) > SAME:
            out.append(
                Cause(
                    "calls",
                    _place(key),
                    f"{_place(key)} is called {_times(often)} as often",
                    _more(often, _moved(x, y)),
                )
            )
    return out


def _more(ratio: float, change: float) -> float:
    """What of a change more bytes or calls explain: nothing where there are fewer and they take longer."""
    return max(change, 0.0) if ratio > 1 else min(change, 0.0)


def _times(ratio: float) -> str:
    """`2.00 times`; small ones keep three digits that count."""
    return f"{ratio:.2f} times" if ratio >= 0.1 else f"{ratio:.3g} times"


def _moved(x: Comm, y: Comm) -> float:
    """Change of exposed time that the change of transfer explains."""
    (first, _), (second, _) = _exposed(x, y), _exposed(y, x)
    return _least(_grew(first, second), _transfer(y, x) - _transfer(x, y))


def _exposed(one: Comm, other: Comm) -> tuple[Mean, Mean]:
    """(exposed, whole) transfer; where a side could not tell it from waiting, both sides' time with waiting."""
    if all(c.times["transfer_ns"].value is not None for c in (one, other)):
        return one.times["attributed_transfer_ns"], one.times["transfer_ns"]
    return one.times["attributed_ns"], one.times["total_ns"]


def _transfer(one: Comm, other: Comm) -> float:
    return _exposed(one, other)[1].value or 0


def _least(x: float, y: float) -> float:
    """The smaller of two changes of one direction, else 0."""
    return 0.0 if x * y <= 0 else min(x, y, key=abs)


def _transfers(a: Side, b: Side) -> list[Cause]:
    """The same bytes take longer, or less: strategies whose links changed."""
    by_strategy: dict[str, list[tuple[Key, float, float, float | None]]] = {}
    for key, x, y in _pairs(a, b):
        bytes_ = _ratio((x.payload_bytes or 0) * (x.calls.value or 0), (y.payload_bytes or 0) * (y.calls.value or 0))
        pace = _ratio(_transfer(x, y), _transfer(y, x))
        if bytes_ is None or pace is None or abs(bytes_ - 1) > SAME or abs(pace - 1) <= SAME:
            continue
        noise = band(_exposed(x, y)[0], _exposed(y, x)[0])
        by_strategy.setdefault(key[0], []).append((key, _moved(x, y), pace, noise))
    out = []
    for strategy, rows in by_strategy.items():
        where = strategy if len(rows) > 1 else _place(rows[0][0])
        pace = statistics.median(p for _, _, p, _ in rows)
        told = f"{where}: the same bytes take {pace:.2f} times as long to transfer"
        out.append(Cause("transfer", where, told, sum(c for _, c, _, _ in rows), _most(n for *_, n in rows)))
    return out


def _most(noises: Iterable[float | None]) -> float | None:
    known = [n for n in noises if n is not None]
    return sum(known) if known else None


def _overlap(a: Side, b: Side) -> list[Cause]:
    """Communication of the same bytes that compute hid before, or hides now; only transfer is worth hiding."""
    out = []
    for key, x, y in _pairs(a, b):
        before, after = x.times["hidden_ns"], y.times["hidden_ns"]
        total = [c.times["total_ns"].value or 0 for c in (x, y)]
        if before.value is None or after.value is None or not all(total):
            continue
        if _close(x.payload_bytes, y.payload_bytes) and abs(after.value / total[1] - before.value / total[0]) > SAME:
            lost = (before.value / total[0] - after.value / total[1]) * max(_transfer(x, y), _transfer(y, x))
            share = f"{100 * before.value / total[0]:.0f} % → {100 * after.value / total[1]:.0f} %"
            how = "less" if lost > 0 else "more"
            told = f"{_place(key)}: {how} of it is hidden behind compute ({share})"
            seen = (_exposed(x, y)[0], _exposed(y, x)[0])
            if _grew(*seen) * lost > 0 or lost * ((b.window.value or 0) - (a.window.value or 0)) > 0:
                out.append(Cause("overlap", _place(key), told, lost, band(before, after)))
    return out


def _grew(x: Mean, y: Mean) -> float:
    return (y.value or 0) - (x.value or 0)


def _close(x: float | None, y: float | None) -> bool:
    return (x is None and y is None) or (bool(x and y) and abs((y or 0) / (x or 1) - 1) <= SAME)


def _rest(a: Side, b: Side) -> list[Cause]:
    said = {
        "idle": "the device is idle {}",
        "exposed_copy": "copies take {}",
        "fused": "fused kernels take {}",
    }
    out = []
    for part, text in said.items():
        x, y = a.parts[part], b.parts[part]
        cost = _grew(x, y)
        told = text.format(f"{_ms(abs(cost))} {'more' if cost > 0 else 'less'}")
        out.append(Cause(part.removeprefix("exposed_"), part, told, cost, band(x, y)))
    return out


def _waiting(a: Side, b: Side) -> Cause | None:
    """Change of exposed waiting over all keys, where both sides could split it."""
    change, noise, most = 0.0, 0.0, ("", 0.0)
    for key, x, y in _pairs(a, b):
        before, after = x.times["attributed_wait_ns"], y.times["attributed_wait_ns"]
        if before.value is None or after.value is None:
            continue
        grew = _grew(before, after)
        change, noise = change + grew, noise + (band(before, after) or 0)
        most = max(most, (_place(key), grew), key=lambda m: abs(m[1]))
    if not change:
        return None
    told = f"ranks wait {_ms(abs(change))} {'longer' if change > 0 else 'less'} for one another, most in {most[0]}"
    return Cause("waiting", most[0], told + ", and no rank's compute explains it", change, noise)


def _place(key: Key) -> str:
    return " ".join(part for part in key if part)


def _percent(share: float) -> str:
    return f"{100 * abs(share):.1f} % {'longer' if share > 0 else 'less'}"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms"
