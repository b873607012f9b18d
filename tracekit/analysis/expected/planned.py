"""The plan of the job beside what was measured: inputs from run.toml and the trace, expected calls and bytes.

What the trace shows itself is read from it (micro-batches from the first stage's sends, the kind of data parallelism
and sequence parallelism from the labels, element types from the messages); run.toml goes before it. The rest is asked
for: nothing is assumed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.errors import UsageError
from tracekit.theory import NoNumber, OutsideDomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.analysis.expected.machine import Machine
    from tracekit.analysis.expected.rows import Key, Sums
    from tracekit.theory import ExpectedCollective, LayoutSpec, Plan

Row = dict[str, Any]
_DATA = {"zero3": "fsdp", "hsdp": "fsdp", "zero2": "zero2", "zero1": "zero1", "dp": "ddp"}
_TYPES = {"BFloat16": "bf16", "Half": "fp16", "Float": "fp32"}
_TELLS_TYPE = {"dtype": {"activation", "stage_transfer", "param_gather"}, "grad_dtype": {"grad_reduce"}}
ASK = "model and training: give [model] and [training] in run.toml (--run) for expected calls, bytes and MFU"


class Planned(Struct):
    """The plan, the pipeline stage of each rank, the inputs as used and what is missing. `plan` may be None."""

    plan: Plan | None = None
    stages: Mapping[int, int] = field(default_factory=dict)
    inputs: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def planned(sums: Mapping[Key, Sums], tables: Mapping[str, Any], layout: Row | None, machine: Machine) -> Planned:
    """The plan of the job as far as its inputs are known.

    layout: {degrees, expert, order, complete} of the declared or inferred layout. Raises UsageError for a mistake in
    the tables.
    """
    out = Planned()
    if not tables.get("model") and not tables.get("training"):
        out.missing.append(ASK)
        return out
    from tracekit.theory import Job, plan
    from tracekit.theory.config import model_of, training_of

    try:
        model = model_of(_model(tables.get("model", {})))
        spec = _layout(layout)
        given = dict(tables.get("training", {}))
        read = {k: v for k, v in _read(sums, spec).items() if k not in given}
        training = training_of({**read, **given})
        out.plan = plan(Job(model, training, spec, machine.hardware))
    except OutsideDomain as e:
        raise UsageError(f"run.toml: {e}") from None
    except NoNumber as e:
        out.missing.append(str(e))
        return out
    out.stages = {r: i for group in spec.groups("pp") for i, r in enumerate(group)}
    out.inputs = [{"field": f"model.{k}", "value": v, "source": "given"} for k, v in tables.get("model", {}).items()]
    out.inputs += [{"field": f"training.{k}", "value": v, "source": "given"} for k, v in given.items()]
    out.inputs += [{"field": f"training.{k}", "value": v, "source": "trace"} for k, v in read.items()]
    out.missing += [f"{name}: {reason}" for name, reason in out.plan.reasons.items()]
    return out


def check_tables(tables: Mapping[str, Any]) -> None:
    """Raise UsageError for a mistake in [model], [training] or [hardware]."""
    from tracekit.theory import job_of

    given = {n: tables[n] for n in ("model", "training", "hardware") if n in tables}
    if isinstance(given.get("model"), dict):
        given["model"] = _model(given["model"])
    job_of(given)


def _model(table: Mapping[str, Any]) -> dict[str, Any]:
    """[model] without a name that says nothing: one that is not in the catalogue, alone."""
    from tracekit.theory import model_names

    name = str(table.get("name", "")).lower().replace("_", "-")
    return {} if set(table) == {"name"} and name not in model_names() else dict(table)


def _layout(layout: Row | None) -> LayoutSpec:
    from tracekit.theory.config import layout_of

    if layout is None or not layout["complete"]:
        raise NoNumber("layout: give --layout or [layout] in run.toml; it is not known completely")
    table = {a: n for a, n in layout["expert"].items() if a in {"ep", "etp"}} | dict(layout["degrees"])
    dense = [a for a in layout["order"] if a in layout["degrees"]]
    try:
        return layout_of(table | {"order": tuple(dense)})
    except (UsageError, OutsideDomain) as e:
        raise NoNumber(f"layout: {e}") from None


def _read(sums: Mapping[Key, Sums], layout: LayoutSpec) -> dict[str, Any]:
    """What the labels and messages show of [training]."""
    found: dict[str, Any] = {}
    seen = {(k.strategy, k.purpose) for k in sums}
    kinds = {_DATA[s] for s, p in seen if p in {"grad_reduce", "param_gather"} and s in _DATA}
    if len(kinds) == 1 and not any(s == "zero1|zero2" for s, _ in seen):
        found["data_parallel"] = kinds.pop()
    if layout.tp > 1 and {("sp", "activation"), ("tp", "activation")} & seen:
        found["sequence_parallel"] = ("sp", "activation") in seen
    for name, purposes in _TELLS_TYPE.items():
        types = Counter(
            _TYPES.get(kind.dtype or "") for key, s in sums.items() if key.purpose in purposes
            for kind, _ in s.kinds.values() if kind.dtype
        )  # fmt: skip
        if len(types) == 1 and None not in types:
            found[name] = next(iter(types))
    if layout.pp > 1 and (m := _micro_batches(sums, layout)) is not None:
        found["micro_batches"] = m
    return found


def _micro_batches(sums: Mapping[Key, Sums], layout: LayoutSpec) -> int | None:
    """Sends of a first-stage rank in a step, where it has one stage: each is a micro-batch's activations."""
    first = {g[0] for g in layout.groups("pp")}
    counts = [
        sum(c for c, _, _ in s.per_step.values()) / len(s.per_step) for k, s in sums.items()
        if (k.strategy, k.op) == ("pp", "send") and k.phase in (None, "forward") and s.per_step and s.ranks <= first
    ]  # fmt: skip
    return int(counts[0]) if counts and len(set(counts)) == 1 and counts[0] == int(counts[0]) else None


def plan_columns(key: Key, s: Sums, size: int | None, found: Planned, crowded: bool) -> Row:
    """Expected calls and bytes of a row, mean of its ranks, and how they compare.

    crowded: whether a rank has calls of the same role in several rows; they cannot be told apart.
    """
    names = ("expected_calls_per_step", "expected_payload_bytes", "expected_step_payload_bytes", "plan", "plan_note")
    out: Row = dict.fromkeys(names)
    if found.plan is None or not s.per_step:
        return out
    wanted = _rows(key, size, found.plan.rows)
    if not wanted:
        return out
    stages = [found.stages.get(r) if r is not None else None for r in s.ranks]
    if crowded or None in stages:
        return out | {"plan_note": "several groups share this role" if crowded else "a rank's stage is not known"}
    at = [i for i in stages if i is not None]
    out["expected_calls_per_step"] = _mean((r.per_step for r in wanted), at)
    out["expected_step_payload_bytes"] = _mean((r.step_payload_bytes for r in wanted), at)
    payloads = {r.payload_bytes for r in wanted if r.per_step is None or any(r.per_step[i] for i in at)}
    out["expected_payload_bytes"] = payloads.pop() if len(payloads) == 1 else None
    return out | compare(key, s, out)


def _rows(key: Key, size: int | None, rows: Iterable[ExpectedCollective]) -> list[ExpectedCollective]:
    op = {"send": {"send", "send_recv"}}.get(key.op, {key.op})
    return [
        r for r in rows
        if _label(r) in key.strategy.split("|") and r.purpose == key.purpose and r.op in op and r.group_size == size
        and (key.phase is None or r.phase == key.phase)
    ]  # fmt: skip


def _label(r: ExpectedCollective) -> str:
    """Strategy as labels say it: of a hybrid-sharded job only the all-reduce over replicas is hsdp."""
    return "zero3" if r.strategy == "hsdp" and r.op != "all_reduce" else r.strategy


def _mean(columns: Iterable[Sequence[int] | None], at: Sequence[int]) -> float | None:
    total = 0.0
    for column in columns:
        if column is None:
            return None
        total += sum(column[i] for i in at) / len(at)
    return total


def compare(key: Key, s: Sums, want: Row) -> Row:
    """`plan`: as-planned | more-than-planned (all that is planned, and other sizes) | differs, with a note."""
    steps = len(s.per_step)
    calls = sum(c for c, _, _ in s.per_step.values()) / steps
    sized = not any(m for _, _, m in s.per_step.values())
    total = sum(b for _, b, _ in s.per_step.values()) / steps if sized else None
    more, planned_bytes, one = (
        want[n] for n in ("expected_calls_per_step", "expected_step_payload_bytes", "expected_payload_bytes")
    )
    same_calls = more is None or calls == more
    same_bytes = planned_bytes is None or total is None or total == planned_bytes
    if more is None and (planned_bytes is None or total is None):
        return {"plan": None, "plan_note": None}
    if same_calls and same_bytes:
        return {"plan": "as-planned", "plan_note": None}
    if more is not None and one is not None and s.counted_payload[one] / steps == more:
        rest = calls - more
        return {"plan": "more-than-planned", "plan_note": f"{rest:g} calls of other sizes beside those of the layers"}
    ratio = calls / more if more else None
    by = total / planned_bytes if total is not None and planned_bytes else None
    return {"plan": "differs", "plan_note": explain(key, ratio, by)}


def explain(key: Key, calls: float | None, total: float | None) -> str:
    """What a ratio of measured to planned calls, and bytes, usually means."""
    each = total / calls if calls and total else total
    parts = []
    if calls is not None and calls != 1:
        parts.append(f"{calls:.3g} × the planned calls" + _of_calls(key, calls))
    if each is not None and each != 1:
        parts.append(f"{each:.3g} × the planned bytes" + (" a call" if calls else "") + _of_bytes(key, each))
    return "; ".join(parts)


def _of_calls(key: Key, ratio: float) -> str:
    if key.strategy in {"tp", "sp"} and key.phase in {"forward", None} and ratio in {1.5, 2}:
        return ": recomputation repeats the forward's"
    if key.purpose == "param_gather" and key.strategy in {"zero3", "hsdp"}:
        return ": gathered in every micro-batch" if ratio > 1 else ": kept after the forward (reshard off)"
    if key.purpose == "grad_reduce" and ratio < 1:
        return ": reduced once a step (no_sync), not every micro-batch"
    if key.purpose == "grad_reduce":
        return ": reduced in every micro-batch"
    if key.strategy == "pp" and ratio > 1:
        return ": several stages a rank (virtual), or more micro-batches"
    return ""


def _of_bytes(key: Key, ratio: float) -> str:
    if key.purpose == "grad_reduce" and ratio in {2, 0.5}:
        return ": gradients in fp32, not 16 bit" if ratio == 2 else ": gradients in 16 bit, not fp32"
    if key.purpose == "activation" and ratio in {2, 0.5}:
        return ": another micro-batch size or element type"
    return ""
