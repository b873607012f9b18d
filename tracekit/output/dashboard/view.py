"""What the dashboard shows at each place: HTML and figures, from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError
from tracekit.output import colours, dataset
from tracekit.output.dashboard import charts, panes, store
from tracekit.output.dashboard.where import rank_text
from tracekit.output.html import markup as m
from tracekit.output.text import ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.output.dashboard.store import Overview, Store
    from tracekit.output.dashboard.where import Where
    from tracekit.output.runs import ListedRun

Row = dict[str, Any]
Part = Any
"""Ready HTML (str), a Bokeh figure, or a list of figures that stand side by side."""


def parts(found: Store, listed: Mapping[str, ListedRun], where: Where, broken: Sequence[str] = ()) -> list[Part]:
    """The dashboard at a place; a mistake in the address or in a dataset is told where its numbers would stand.

    broken: why other runs are not listed.
    """
    head: list[Part] = [panes.path(where)]
    try:
        if where.run is None:
            return head + overview(found, listed) + [panes.unread(broken)] * bool(broken)
        if where.run not in listed:
            return [*head, panes.reason("No such run here: it may be gone, or older than those that are shown.")]
        data = dataset.read(listed[where.run].folder)
        if where.call is not None:
            return head + call(data, where)
        return head + (rank(data, where) if where.rank is not None else run(data, where))
    except TracekitError as e:
        return [*head, panes.reason(str(e))]


def overview(found: Store, listed: Mapping[str, ListedRun]) -> list[Part]:
    """All runs: trends, then the list."""
    figures: dict[str, Overview | str] = {}
    for name, stored in listed.items():
        try:
            figures[name] = found.overview(stored)
        except TracekitError as e:
            figures[name] = str(e)
    known = {n: f for n, f in figures.items() if not isinstance(f, str)}
    out: list[Part] = []
    if len(known) > 1:
        names, values = list(known), list(known.values())
        out += [panes.title("Trends", "Each run one point, oldest left; means of a rank and complete step.")]
        out += [[charts.trend_step(names, values), charts.trend_exposed(names, values)]]
        if any(v for f in values for v in f.exposed.values()):
            shown = sorted({s for f in values for s, v in f.exposed.items() if v})
            out += ["<h3>Exposed communication by strategy</h3>" + m.legend((colours.strategy(s), s) for s in shown)]
            out += [charts.trend_strategies(names, values)]
    return [*out, panes.title("Runs") + panes.class_legend() + panes.run_table(listed, figures)]


def _tiles(mean: Row, places: set[store.Place], found: Mapping[str, Row]) -> str:
    """Key figures of a place: the means of its rows in `breakdown`, and its communication by strategy."""
    window, exposed = mean["window_ns"], mean["exposed_comm_ns"]
    if not window:
        return panes.reason("no time of steps in this run: the recording has communication only")
    ranks, steps = len({p[:2] for p in places}), len({p[2] for p in places})
    over = f"mean of {ranks:,} rank{'s' if ranks > 1 else ''} and {steps:,} step{'s' if steps > 1 else ''}"
    tiles = [panes.tile("step", f"{m.time(window)} ms", over)]
    if found and any(r["total_ns"] is not None for r in found.values()):
        share = f"{100 * exposed / window:.1f} % of a step"
        tiles.append(panes.tile("exposed communication", f"{m.time(exposed)} ms", share))
        waits = [r["attributed_wait_ns"] for r in found.values()]
        if all(w is not None for w in waits):
            tiles.append(panes.tile("of it waiting", f"{m.time(sum(waits))} ms", "for other ranks"))
        hidden = [r["hidden_ns"] for r in found.values()]
        if len(found) == 1 and hidden[0] is not None:
            tiles.append(panes.tile("hidden", f"{m.time(hidden[0])} ms", "communication under compute"))
    return f'<dl class="tiles">{"".join(tiles)}</dl>'


def run(data: dataset.Dataset, where: Where) -> list[Part]:
    """A run, or one step of it: steps, strategies, ranks."""
    rows, places = store.counted(data, steps=where.steps)
    if not places:
        return [panes.reason("no steps here: the recording has no device activity with a time, or no such step")]
    mean = store.mean(rows)
    by_strategy = store.exposure(data, places, steps=where.steps)
    out: list[Part] = []
    whole = where.step is None
    name = f"Run {m.esc(m.clip(where.run or '', 60))}" if whole else f"Step {where.step}"
    out += [panes.title(name) + _tiles(mean, places, by_strategy), *(_steps(data, where) if whole else [])]
    numbers = panes.strategy_table(where, by_strategy, mean["window_ns"]) if by_strategy else ""
    out.append(panes.title("Communication by strategy", "A strategy's name chooses it for the calls of a rank."))
    out.append(numbers or panes.reason("no communication in these steps"))
    ranks = store.by(rows, "rank", store.TIMES, "mean")
    ordered = sorted(ranks.items(), key=lambda r: -(r[1]["exposed_comm_ns"] or 0))
    entries = [(panes.to_rank(where, r), rank_text(r), v) for r, v in ordered]
    longest = max(v["window_ns"] for v in ranks.values())
    caption = "Most exposed first; " + ("mean of complete steps" if whole else "this step")
    numbers = panes.time_table("rank", entries, longest=longest, caption=caption, where=where)
    out.append(panes.title("Ranks") + panes.class_legend() + numbers)
    findings = _messages(data.rows("findings")) if whole else []
    return [*out, panes.title("Findings") + panes.finding_list(findings)] if findings else out


def _steps(data: dataset.Dataset, where: Where) -> list[Part]:
    """All steps of a run as a picture and as a table; those that the recording cuts are named so."""
    steps = store.by(data.arrow("breakdown", ["step", *store.TIMES]), "step", store.TIMES, "mean")
    steps = {s: v for s, v in steps.items() if s is not None}
    if not steps:
        return []
    known = data.arrow("steps", ["step", "name", "complete"]).to_pylist()
    named = {s["step"]: str(s["name"]) for s in known}
    cut = {s["step"] for s in known if not s["complete"]}
    entries = [(where.to(step=s), named.get(s, str(s)), v) for s, v in steps.items()]
    marks = [" (cut)" if s in cut else "" for s in steps]
    entries = [(to, f"{m.clip(name, 34)}{mark}", v) for (to, name, v), mark in zip(entries, marks, strict=True)]
    longest = max(v["window_ns"] for v in steps.values())
    caption = "Mean over ranks. Cut: the recording may begin or end within it; it counts in no other table"
    numbers = panes.time_table("step", entries[:200], longest=longest, caption=caption)
    left = f'<p class="note">the first 200 of {len(entries)} steps</p>' if len(entries) > 200 else ""
    head = [panes.title("Steps") + panes.class_legend()]
    return [*head, charts.steps(steps), numbers + left] if len(steps) > 1 else [*head, numbers]


def rank(data: dataset.Dataset, where: Where) -> list[Part]:
    """A rank, in all steps or one: strategies and calls."""
    rows, places = store.counted(data, ranks=where.ranks, steps=where.steps)
    out: list[Part] = []
    name = f"Rank {m.esc(where.rank)}" + (f", step {where.step}" if where.step is not None else "")
    if places:
        mean = store.mean(rows)
        by_strategy = store.exposure(data, places, ranks=where.ranks, steps=where.steps)
        out += [panes.title(name) + _tiles(mean, places, by_strategy)]
        out += [panes.class_legend() + panes.bar({c: mean[c] for c in store.CLASSES}, mean["window_ns"])]
        out += [panes.title("Communication by strategy") + panes.strategy_table(where, by_strategy, mean["window_ns"])]
    else:
        out += [panes.title(name) + panes.reason("no time of this rank and step in the recording")]
    return [*out, calls(data, where)]


def calls(data: dataset.Dataset, where: Where) -> str:
    """Calls of a rank, those that are chosen, longest first."""
    import pyarrow.compute as pc

    found = data.arrow("collectives", panes.CALL_COLUMNS, ranks=where.ranks, steps=where.steps)
    if where.strategy is not None:
        found = found.filter(pc.equal(pc.cast(found.column("strategy"), "string"), where.strategy))
    order = pc.sort_indices(found, [("dur_ns", "descending"), ("id", "ascending")])
    shown = found.take(order.slice(where.page * panes.PAGE, panes.PAGE)).to_pylist()
    of = f" of {m.strategy(where.strategy)}" if where.strategy is not None else ""
    count = f"{found.num_rows:,} calls" + ("" if where.step is None else " in this step")
    head = panes.title(f"Communication calls{of}", count)
    if not found.num_rows:
        return head + panes.reason("no such call on this rank")
    return head + panes.call_table(where, shown, found.num_rows)


def call(data: dataset.Dataset, where: Where) -> list[Part]:
    """One call: its columns, and what the other ranks of it show."""
    found = store.call(data, where.ranks, where.call or 0)
    name = f"{m.esc(m.clip(found['op'], 60))} · {m.strategy(found['strategy'])}"
    out: list[Part] = [panes.title(f"Call {where.call} of rank {m.esc(where.rank)}", name)]
    if found["match_id"] is not None:
        import pyarrow.compute as pc

        rows = data.arrow("matches")
        match = rows.filter(pc.equal(rows.column("match_id"), found["match_id"])).to_pylist()
        out += ["<h3>On all ranks</h3>" + panes.match_fields(match[0])] if match else []
    elif found["match"]:
        out += [panes.reason(f"not matched with other ranks: {m.clip(found['match'], 200)}")]
    took = "–" if found["dur_ns"] is None else f"{ms(found['dur_ns'])} ms"
    return [*out, f"<h3>As recorded</h3><p>It took {took}.</p>" + panes.call_fields(found)]


def _messages(rows: list[Row]) -> list[Row]:
    """Findings in order, the same message of several ranks once."""
    return list({(r["severity"], r["message"]): r for r in reversed(rows)}.values())[::-1]
