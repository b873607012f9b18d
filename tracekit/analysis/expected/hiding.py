"""Can exposed communication be avoided: rules by what a call is for (docs/findings.md gives each with its source).

*structural*: the plain algorithm has nothing to run meanwhile (tensor-parallel forward, experts' exchange, Ulysses,
gathered K and V, tied embedding); also the first gather and the last reduction of a step, which nothing precedes or
follows, and what exceeds the compute that is left. *avoidable*: the rest of what compute can hide; at most, since the
compute left in a step need not stand where it is needed. *unknown*: the trace does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tracekit.analysis.expected.calls import Kind

AVOIDABLE, STRUCTURAL, UNKNOWN = range(3)
_INFERENCE = frozenset({"prefill", "decode", "verify", "draft"})
_DATA = frozenset({"dp", "zero1", "zero2", "zero1|zero2", "zero3", "hsdp"})
_SHARDED = frozenset({"zero3", "hsdp"})


class Rule(NamedTuple):
    """What holds for a kind of call. `always`: the call of a step that stays exposed all the same (first | last)."""

    overlap: int
    why: str
    always: str | None = None


_NOTHING_ELSE = Rule(STRUCTURAL, "nothing to run meanwhile unless GEMM and call are split")
_NOT_MODELLED = Rule(UNKNOWN, "no rule for this purpose")
_REDUCE = Rule(AVOIDABLE, "the backward before it; the last reduction stays exposed", "last")
_EXPERTS = Rule(STRUCTURAL, "only another micro-batch (two batches, DualPipe) could hide it")


def rule_of(kind: Kind) -> Rule:
    """The rule for a kind of call."""
    strategy, purpose, phase = kind.strategy, kind.purpose, kind.phase
    if purpose == "grad_reduce" and strategy in _DATA:
        return _REDUCE
    if purpose == "param_gather" and strategy in _DATA:
        return _gather(strategy, phase)
    if purpose == "activation" and strategy in {"tp", "sp"}:
        return _activation(strategy, phase, kind.op)
    if purpose == "kv_exchange" and strategy == "cp":
        return _context(kind)
    if purpose in {"token_dispatch", "token_combine"}:
        return _EXPERTS
    if purpose == "tied_grad":
        return Rule(STRUCTURAL, "after the last backward nothing is left to run")
    if purpose == "stage_transfer":
        return Rule(UNKNOWN, "a stage's waiting is the schedule's bubble: see pipeline")
    return _NOT_MODELLED


def _gather(strategy: str, phase: str | None) -> Rule:
    if strategy not in _SHARDED:
        return Rule(AVOIDABLE, "the next forward; the first gather stays exposed", "first")
    if phase in {"backward", "recompute"}:
        return Rule(AVOIDABLE, "prefetch behind the backward of the layer after")
    return Rule(AVOIDABLE, "prefetch behind the forward of the layer before; the first gather stays exposed", "first")


def _activation(strategy: str, phase: str | None, op: str) -> Rule:
    if phase is None:
        return Rule(UNKNOWN, "its phase is not known: the backward can hide some, the forward none")
    if phase != "backward" or phase in _INFERENCE:
        return _NOTHING_ELSE
    if op in {"all_reduce", "reduce_scatter"}:
        return Rule(AVOIDABLE, "weight-gradient GEMM of the same layer")
    if strategy == "sp" and op == "all_gather":
        return Rule(UNKNOWN, "gathers of inputs for weight gradients can be hidden, those of gradients cannot")
    return _NOT_MODELLED


def _context(kind: Kind) -> Rule:
    if kind.op in {"send", "recv", "send_recv"} or (kind.variant or "").startswith("ring"):
        return Rule(AVOIDABLE, "attention of the block before")
    if kind.op in {"all_gather", "reduce_scatter"} or (kind.variant or "").startswith("ulysses"):
        return Rule(STRUCTURAL, "attention needs all of it first")
    return Rule(UNKNOWN, "its variant is not known")
