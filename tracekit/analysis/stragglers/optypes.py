"""The operation types of a training step and their places in it, by the names of the StragglerAnalysis op table."""

from __future__ import annotations

FORWARD, BACKWARD = "forward-compute", "backward-compute"
COMPUTE = (FORWARD, BACKWARD)
"""The compute stream of a worker."""

P2P = ("forward-send", "forward-recv", "backward-send", "backward-recv")
"""Each of the four has a stream of its own."""

PARAMS_GATHER, GRADS_SCATTER, GRADS_REDUCE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
NORM_REDUCE, EMBEDDING_REDUCE = "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
GC, CLIP, OPTIMIZER = "gc", "optimizer-clip-main-grad", "optimizer"

COMMUNICATION = frozenset({*P2P, PARAMS_GATHER, GRADS_SCATTER, GRADS_REDUCE, NORM_REDUCE, EMBEDDING_REDUCE, CLIP})
"""Ideal duration = median of the transfer; that of every other type = mean of the duration."""

KNOWN = frozenset({*COMPUTE, GC, OPTIMIZER}) | COMMUNICATION


def family(op: str) -> str:
    """The group an operation is counted in: both ends of a pipeline transfer are one."""
    return f"{op.split('-')[0]}-pp-comm" if op in P2P else op
