"""Counts and bytes of tensor, sequence, pipeline and data parallelism.

b sequences a micro-batch, s tokens, h hidden, t tensor ranks, c context ranks, p stages, m micro-batches, v virtual
stages a rank, d data ranks, Ψ parameters. Payloads are full buffers, as a trace records them; wire bytes what a rank
sends. Sources: SC21 (2104.04473) 3.2, Korthikanti (2205.05198) 4.2.2, ZeRO (1910.02054) 7, Megatron-LM
tensor_parallel/layers.py, cross_entropy.py, schedules.py, finalize_model_grads.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.theory.bubbles import ONE_STAGE, V_SHAPED, schedule_name
from tracekit.theory.checks import divides, positive, share
from tracekit.theory.collectives import wire_bytes
from tracekit.theory.errors import OutsideDomain


def activation_bytes(batch: int, sequence: int, hidden: int, element_bytes: int = 2, context: int = 1) -> int:
    """Payload of one activation collective: b s h e / c."""
    positive(batch=batch, sequence=sequence, hidden=hidden, element_bytes=element_bytes)
    return batch * divides(context, sequence, "sequence by context ranks") * hidden * element_bytes


def tensor_elements_sent(batch: int, sequence: int, hidden: int, tensor: int) -> int:
    """Elements a rank sends in a layer and micro-batch, four all-reduces: 8 b s h (t−1)/t. Elements, not bytes."""
    return 4 * wire_bytes("all_reduce", tensor, batch * sequence * hidden)


@dataclass(frozen=True, slots=True)
class LayerCalls:
    """Calls of one kind of collective in a transformer layer for one micro-batch."""

    op: str
    forward: int
    backward: int
    recompute: int


def tensor_calls(*, sequence_parallel: bool, full_recompute: bool = False) -> tuple[LayerCalls, ...]:
    """Collectives of a layer: TP two all-reduces each way; SP 2 AG + 2 RS, then 4 AG + 2 RS.

    Two of the four re-gather the input of the column-parallel GEMMs for their weight gradient. Full recomputation
    repeats the forward.
    """
    again = 2 if full_recompute else 0
    if not sequence_parallel:
        return (LayerCalls("all_reduce", 2, 2, again),)
    return (LayerCalls("all_gather", 2, 4, again), LayerCalls("reduce_scatter", 2, 2, again))


def sequence_parallel_wire_bytes(calls: int, payload: int, tensor: int) -> int:
    """Bytes a rank sends in `calls` gathers and scatters of one payload: calls · (t−1)/t · S."""
    positive(calls=calls, tensor=tensor)
    return share(tensor - 1, tensor, calls * payload)


def cross_entropy_payload_bytes(batch: int, sequence: int, context: int = 1) -> int:
    """Payload of each of the three fp32 all-reduces of a vocabulary-parallel loss: b s 4 / c."""
    return activation_bytes(batch, sequence, 1, 4, context)


CROSS_ENTROPY_CALLS = 3
"""Maximum, target logit, sum of exponentials."""


def tied_embedding_bytes(vocab: int, hidden: int, tensor: int, grad_bytes: int = 4) -> int:
    """Payload of the all-reduce between first and last stage when they share the embedding: V h / t · e."""
    positive(vocab=vocab, hidden=hidden, grad_bytes=grad_bytes)
    return divides(tensor, vocab, "vocabulary by tensor ranks (give the padded size)") * hidden * grad_bytes


def stage_transfer_bytes(
    batch: int, sequence: int, hidden: int, element_bytes: int = 2, *, context: int = 1, tensor: int = 1,
    sequence_parallel: bool = False,
) -> int:  # fmt: skip
    """One send between stages: b s h e / c, and / t under sequence parallelism."""
    whole = activation_bytes(batch, sequence, hidden, element_bytes, context)
    return divides(tensor, whole, "activation by tensor ranks") if sequence_parallel else whole


def pipeline_sends(schedule: str, stages: int, micro_batches: int, virtual: int = 1) -> int:
    """Sends of the whole pipeline in a step: 2m(pv−1); V-shaped 2m(2p−2), the turn is local. `stages` counts ranks."""
    sent = pipeline_sends_by_rank(schedule, stages, micro_batches, virtual)
    return sum(forward + backward for forward, backward in sent)


def pipeline_sends_by_rank(
    schedule: str, stages: int, micro_batches: int, virtual: int = 1
) -> tuple[tuple[int, int], ...]:
    """(forward, backward) sends of each pipeline rank in a step. OutsideDomain for DualPipe (two directions)."""
    positive(stages=stages, micro_batches=micro_batches, virtual=virtual)
    name = schedule_name(schedule)
    if name in ONE_STAGE and virtual != 1:
        raise OutsideDomain(f"{name} has one stage a rank, not {virtual}")
    if name == "DualPipe":
        raise OutsideDomain("DualPipe's sends by rank need its simulated order")
    p, m = stages, micro_batches
    if p == 1:
        return ((0, 0),)
    if name in V_SHAPED:
        # Rank r holds stages r and 2p-1-r; only the turn (stage p-1 to p, both on the last rank) is local.
        forward = [m * ((r < p - 1) + (r > 0)) for r in range(p)]
        return tuple((f, f) for f in forward)
    return tuple((m * (virtual - (r == p - 1)), m * (virtual - (r == 0))) for r in range(p))


def data_parallel_wire_bytes(parameters: int, data: int, grad_bytes: int = 2) -> int:
    """Bytes a rank sends to all-reduce the gradients: 2(d−1)/d Ψ e."""
    return wire_bytes("all_reduce", data, parameters * grad_bytes)


def sharded_optimizer_wire_bytes(parameters: int, data: int, grad_bytes: int = 4, param_bytes: int = 2) -> int:
    """Bytes a rank sends with ZeRO-1/2 or a distributed optimizer: (d−1)/d Ψ (e_grad + e_param)."""
    return wire_bytes("reduce_scatter", data, parameters * (grad_bytes + param_bytes))


def zero_volume_in_parameters(stage: int) -> int:
    """Elements a rank moves in a step in units of Ψ, for many ranks: 2, 2, 2, 3 for plain DP and ZeRO-1, 2, 3."""
    if stage not in {0, 1, 2, 3}:
        raise OutsideDomain(f"ZeRO has the stages 0 to 3, not {stage}")
    return 3 if stage == 3 else 2


def fully_sharded_wire_bytes(parameters: int, shard: int, param_bytes: int = 2, grad_bytes: int | None = None) -> int:
    """Bytes a rank sends in its shard group for one micro-batch with resharding: (S−1)/S Ψ (2 e_param + e_grad)."""
    grads = param_bytes if grad_bytes is None else grad_bytes
    return wire_bytes("all_gather", shard, parameters * (2 * param_bytes + grads))


def hybrid_replica_wire_bytes(parameters: int, shard: int, replicate: int, grad_bytes: int = 2) -> int:
    """Bytes a rank sends to all-reduce its shard over the replicas: 2(R−1)/R Ψ/S e."""
    positive(shard=shard)
    return wire_bytes("all_reduce", replicate, share(1, shard, parameters * grad_bytes))


def fully_sharded_calls(
    micro_batches: int, *, reshard_after_forward: bool = True, reduce_once: bool = False
) -> tuple[int, int]:
    """(all-gathers, reduce-scatters) of one layer in a step of k micro-batches: 2k or k, and k or (no_sync) 1."""
    positive(micro_batches=micro_batches)
    return micro_batches * (2 if reshard_after_forward else 1), 1 if reduce_once else micro_batches
