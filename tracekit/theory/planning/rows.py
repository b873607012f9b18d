"""One row of the plan: a kind of collective that a layout implies, with counts, bytes, times and what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from tracekit.theory.collectives import bus_factor, wire_bytes
from tracekit.theory.errors import MissingInput, NoNumber
from tracekit.theory.expectation import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.theory.expectation import Expectation
    from tracekit.theory.machine import Hardware, Placement
    from tracekit.theory.specs import LayoutSpec, TrainingSpec
    from tracekit.theory.transformer import ModelSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """All inputs of a plan; hardware may be unknown."""

    model: ModelSpec
    training: TrainingSpec
    layout: LayoutSpec
    hardware: Hardware | None = None


@dataclass(frozen=True, slots=True)
class ExpectedCollective:
    """One kind of collective. Per-stage figures have one entry a pipeline rank; null fields have a reason.

    `per_layer`: calls of one layer and micro-batch (of one layer and step where `per_micro_batch` is null).
    `payload_bytes`, `wire_bytes` and times are of one call; `step_payload_bytes` of all calls of a step, known also
    where the number of calls is not (buckets).
    """

    strategy: str
    purpose: str
    phase: str
    op: str
    axes: str
    what: str
    group_size: int
    bus_factor: float
    per_layer: int | None
    per_micro_batch: tuple[int, ...] | None
    per_step: tuple[int, ...] | None
    payload_bytes: int | None
    wire_bytes: int | None
    step_payload_bytes: tuple[int, ...] | None
    step_wire_bytes: tuple[int, ...] | None
    overlap: str
    hidden_by: str
    hide_flops: float | None = None
    placement: Placement | None = None
    expectation: Expectation | None = None
    step_lower_bound_ns: tuple[float, ...] | None = None
    step_expected_ns: tuple[float, ...] | None = None
    hide_gbps: float | None = None
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a strategy knows of a row: values as functions that may raise NoNumber.

    `calls`: (a layer, a micro-batch by stage, a step by stage). `total`: payload of a step by stage where calls are not
    known. `place`: Placement for GPUs a node.
    """

    strategy: str
    purpose: str
    phase: str
    op: str
    axes: str
    what: str
    group_size: int
    place: Callable[[int], Placement]
    payload: Callable[[], int]
    per_layer: int | None = None
    per_micro_batch: Callable[[], tuple[int, ...]] | None = None
    per_step: Callable[[], tuple[int, ...]] | None = None
    total: Callable[[], tuple[int, ...]] | None = None
    overlap: str = "structural"
    hidden_by: str = ""
    hide_flops: Callable[[], float] | None = None


def attempt(name: str, reasons: dict[str, str], function: Callable[[], T] | None) -> T | None:
    """The function's value, or None with its reason noted under `name`."""
    if function is None:
        return None
    try:
        return function()
    except NoNumber as e:
        reasons[name] = str(e)
        return None


def finish(draft: Draft, job: Job) -> ExpectedCollective:
    """Fill a row: counts, bytes, placement, times."""
    reasons: dict[str, str] = {}
    payload = attempt("payload_bytes", reasons, draft.payload)
    micro = attempt("per_micro_batch", reasons, draft.per_micro_batch)
    step = attempt("per_step", reasons, draft.per_step or (lambda: _times_micro_batches(draft, job)))
    total = attempt("step_payload_bytes", reasons, draft.total)
    if draft.total is None and payload is not None and step is not None:
        total = tuple(n * payload for n in step)
    n = draft.group_size
    row = ExpectedCollective(
        draft.strategy, draft.purpose, draft.phase, draft.op, draft.axes, draft.what, n, bus_factor(draft.op, n),
        draft.per_layer, micro, step, payload, None if payload is None else wire_bytes(draft.op, n, payload),
        total, None if total is None else tuple(wire_bytes(draft.op, n, b) for b in total),
        draft.overlap, draft.hidden_by, attempt("hide_flops", reasons, draft.hide_flops), reasons=reasons,
    )  # fmt: skip
    return _timed(row, draft, job)


def _times_micro_batches(draft: Draft, job: Job) -> tuple[int, ...]:
    if draft.per_micro_batch is None:
        raise MissingInput("the number of calls (buckets are the framework's choice)")
    (m,) = job.training.need("micro_batches")
    return tuple(n * m for n in draft.per_micro_batch())


def _timed(row: ExpectedCollective, draft: Draft, job: Job) -> ExpectedCollective:
    hw, reasons = job.hardware, row.reasons
    if hw is None:
        reasons["lower_bound_ns"] = "needs hardware"
        return row
    placement = attempt("placement", reasons, lambda: draft.place(int(hw.need("gpus_per_node"))))
    hide_gbps = attempt("hide_gbps", reasons, lambda: _hide(row, hw, job)) if row.hide_flops else None
    row = replace(row, placement=placement, hide_gbps=hide_gbps)
    if placement is None:
        reasons["lower_bound_ns"] = reasons["placement"]
        return row
    one = row.payload_bytes
    if one is not None:
        row = replace(row, expectation=attempt("lower_bound_ns", reasons, lambda: expect(row.op, one, placement, hw)))
    return replace(
        row,
        step_lower_bound_ns=attempt("step_lower_bound_ns", reasons, lambda: _step_bound(row, placement, hw)),
        step_expected_ns=attempt("step_expected_ns", reasons, lambda: _step_expected(row, placement, hw)),
    )


def _hide(row: ExpectedCollective, hw: Hardware, job: Job) -> float | None:
    """GB/s at which the call hides behind its compute run at the dense peak: what the fastest compute would need."""
    wire = row.wire_bytes if row.payload_bytes is not None else max(row.step_wire_bytes or (0,))
    if not wire or not row.hide_flops:
        return None
    return wire / (row.hide_flops / (hw.peak(job.training.choice("dtype")) * 1e3))


def _step_bound(row: ExpectedCollective, at: Placement, hw: Hardware) -> tuple[float, ...] | None:
    """Least time of all calls of a step by stage: linear in bytes; in-switch reduction counted where it may engage."""
    if row.step_payload_bytes is None:
        return None
    found = []
    for total in row.step_payload_bytes:
        e = expect(row.op, total, at, hw).bound
        found.append(e.lower_bound_ns if e.nvls_bound_ns is None else e.nvls_bound_ns)
    return tuple(found)


def _step_expected(row: ExpectedCollective, at: Placement, hw: Hardware) -> tuple[float, ...] | None:
    """Expected time of all calls by stage; of one message of the whole size where the calls are not known."""
    if row.per_step is not None and row.expectation is not None:
        one = row.expectation.expected_ns
        if one is None:
            row.reasons["step_expected_ns"] = row.expectation.reason or "no expectation of one call"
            return None
        return tuple(n * one for n in row.per_step)
    if row.step_payload_bytes is None:
        return None
    each = [expect(row.op, b, at, hw).expected_ns if b else 0.0 for b in row.step_payload_bytes]
    return None if None in each else tuple(t for t in each if t is not None)
