"""The plan of a layout: counts and bytes by hand, sums over ranks, sends against simulated orders, nulls with reasons."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tracekit import theory
from tracekit.theory import bubbles
from tracekit.theory.planning import stages
from tracekit.theory.schedules import build, parts

LLAMA = theory.model("llama3-70b")
TRAINING = theory.TrainingSpec(
    micro_batch=1, micro_batches=16, sequence=8192, schedule="1F1B", dtype="bf16", grad_dtype="fp32", recompute="none",
    sequence_parallel=False, data_parallel="ddp",
)  # fmt: skip
GPT3 = replace(theory.model("gpt3-175b"), vocab=51200)  # padded, as it is trained
DGX = theory.hardware("dgx-h100")


def job(layout: theory.LayoutSpec, model: theory.ModelSpec = LLAMA, **training: object) -> theory.Job:
    return theory.Job(model, replace(TRAINING, **training), layout, DGX)  # type: ignore[arg-type]


def rows(j: theory.Job, **wanted: str) -> list[theory.ExpectedCollective]:
    return [r for r in theory.plan(j).rows if all(getattr(r, k) == v for k, v in wanted.items())]


def row(j: theory.Job, **wanted: str) -> theory.ExpectedCollective:
    (found,) = rows(j, **wanted)
    return found


def test_one_rank_communicates_nothing() -> None:
    p = theory.plan(job(theory.LayoutSpec()))
    assert p.rows == ()
    assert p.bubble is not None
    assert (p.bubble.bubble_ns, p.structural_ns, p.mfu_upper_ratio) == (0, 0, 1.0)


def test_tensor_parallel() -> None:
    j = job(theory.LayoutSpec(tp=8, pp=4, dp=2))
    forward = row(j, strategy="tp", phase="forward", what="attention and MLP")
    assert (forward.op, forward.group_size, forward.per_layer) == ("all_reduce", 8, 2)
    assert forward.payload_bytes == 8192 * 8192 * 2
    assert forward.wire_bytes == 8192 * 8192 * 2 * 7 // 4
    assert forward.per_micro_batch == (40,) * 4  # 20 layers a stage
    assert forward.per_step == (640,) * 4
    assert forward.placement == theory.Placement(8, 1, 8)
    assert row(j, strategy="tp", what="vocabulary-parallel loss").per_step == (0, 0, 0, 48)
    assert row(j, strategy="tp", what="vocabulary-parallel loss").payload_bytes == 8192 * 4
    assert row(j, strategy="tp", what="vocabulary-parallel embedding").per_step == (16, 0, 0, 0)


def test_full_recompute_repeats_the_forward() -> None:
    for sp, calls in ((False, {"all_reduce": 40}), (True, {"all_gather": 40, "reduce_scatter": 40})):
        again = rows(job(theory.LayoutSpec(tp=8, pp=4), recompute="full", sequence_parallel=sp), phase="recompute")
        assert {r.op: r.per_micro_batch[0] for r in again if r.per_micro_batch} == calls
    assert rows(job(theory.LayoutSpec(tp=8, pp=4), recompute="selective"), phase="recompute") == []


def test_sequence_parallel_ten_collectives_a_layer() -> None:
    found = rows(job(theory.LayoutSpec(tp=8), sequence_parallel=True), strategy="sp")
    layer = [r for r in found if r.what.startswith("attention")]
    assert sum(r.per_layer or 0 for r in layer) == 10
    wire = sum((r.per_layer or 0) * (r.wire_bytes or 0) for r in layer)
    assert wire == 1_174_405_120  # published: 1120 MiB


@pytest.mark.parametrize(
    ("name", "v"), [("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 2), ("LoopedBFS", 2), ("ZB-H1", 1), ("ZBVZeroBubble", 2)]
)  # fmt: skip
def test_sends_are_those_of_the_order(name: str, v: int) -> None:
    """Counted from the schedule's own actions: each forward but the last stage's is sent unless the next stage is here."""
    p, m = 4, 8
    j = job(theory.LayoutSpec(pp=p), schedule=name, virtual=1 if name == "ZBVZeroBubble" else v, micro_batches=m)
    order = build(name, p, m, v if v > 1 else None)
    home = {s: (s if s < p else 2 * p - 1 - s) if name in bubbles.V_SHAPED else s % p for s in range(p * v)}
    sent = {"forward": [0] * p, "backward": [0] * p}
    got = {"forward": [0] * p, "backward": [0] * p}
    for rank, steps in enumerate(order.orders):
        for action in (a for step in steps for a in parts(step)):
            phase, step = ("forward", 1) if action.kind.name == "FORWARD" else ("backward", -1)
            there = action.stage + step
            if action.kind.name == "BACKWARD_WEIGHT" or there not in home or home[there] == rank:
                continue
            sent[phase][rank] += 1
            got[phase][home[there]] += 1
    for phase in ("forward", "backward"):
        assert row(j, strategy="pp", phase=phase, op="send").per_step == tuple(sent[phase])
        assert row(j, strategy="pp", phase=phase, op="recv").per_step == tuple(got[phase])


def test_parameters_over_all_ranks_are_the_models() -> None:
    """Divided weights once, replicated ones once a tensor rank."""
    for model, tp, pp in product((LLAMA, theory.model("qwen3-4b"), GPT3), (1, 2, 4), (1, 2)):
        local = sum(p.dense for p in stages.local_parameters(job(theory.LayoutSpec(tp=tp, pp=pp), model)))
        kinds = stages.layer_parameters(model, moe=False)
        (layers, h) = model.need("layers", "hidden")
        norm = h * (2 if model.layer_norm else 1)
        replicated = layers * kinds.replicated + norm + model.positions * h
        tied = model.tied and pp > 1
        whole = theory.parameters(model) + (model.need("vocab")[0] * h if tied else 0)
        assert local * tp == whole + (tp - 1) * replicated


def test_gradients_of_plain_data_parallelism() -> None:
    j = job(theory.LayoutSpec(dp=8), theory.model("llama3-8b"), grad_dtype="bf16")
    r = row(j, strategy="dp")
    assert r.step_payload_bytes == (2 * 8_030_261_248,)
    assert r.step_wire_bytes == (28_105_914_368,)  # published
    assert (r.payload_bytes, r.per_step) == (None, None)
    assert "bucket" in r.reasons["payload_bytes"]
    assert r.step_lower_bound_ns == pytest.approx((2 * 8_030_261_248 / 450,))  # NVLS may reduce in the switch


def test_sharded_optimizer() -> None:
    j = job(theory.LayoutSpec(dp=8), theory.model("llama3-8b"), data_parallel="zero1")
    wire = [r.step_wire_bytes[0] for r in rows(j, strategy="zero1") if r.step_wire_bytes]
    assert sum(wire) == 42_158_871_552  # published: fp32 gradients, bf16 parameters
    assert row(j, purpose="param_gather").phase == "optimizer"


def test_zero2_reduces_every_micro_batch() -> None:
    layout = theory.LayoutSpec(dp=8)
    once, each = (
        row(job(layout, data_parallel="zero2", reduce_once=o), purpose="grad_reduce").step_payload_bytes
        for o in (True, False)
    )
    assert once is not None
    assert each == tuple(16 * b for b in once)


@pytest.mark.parametrize(("reshard", "gathers"), [(True, 2), (False, 1)])
def test_fully_sharded(reshard: bool, gathers: int) -> None:
    j = job(theory.LayoutSpec(dp=64), data_parallel="fsdp", reshard=reshard, micro_batches=4, grad_dtype="bf16")
    found = rows(j, strategy="zero3", op="all_gather")
    assert len(found) == gathers
    assert all(r.payload_bytes == 2 * 855_654_400 for r in found)  # a layer's 855 638 016 weights and its norms
    assert sum(sum(r.per_step or ()) for r in found) == gathers * 80 * 4
    assert row(j, op="reduce_scatter").per_step == (320,)
    once = job(theory.LayoutSpec(dp=64), data_parallel="fsdp", reduce_once=True)
    assert row(once, op="reduce_scatter").per_step == (80,)


def test_hybrid_sharding() -> None:
    j = job(theory.LayoutSpec(dp=64, shard=8), data_parallel="fsdp", grad_dtype="bf16")
    gather, reduce = rows(j, op="all_gather")[0], row(j, op="all_reduce")
    assert (gather.strategy, gather.group_size, reduce.group_size) == ("hsdp", 8, 8)
    assert (gather.placement, reduce.placement) == (theory.Placement(8, 1, 8), theory.Placement(8, 8, 1))
    assert reduce.payload_bytes == 2 * 855_654_400 // 8


def test_context_parallel() -> None:
    layout = theory.LayoutSpec(tp=8, cp=16)
    ring = row(job(layout, sequence=131072, context_method="ring"), strategy="cp", phase="forward")
    assert (ring.payload_bytes, ring.per_layer, ring.group_size) == (4_194_304, 15, 16)  # published: 4 MiB, 15 hops
    back = row(job(layout, sequence=131072, context_method="ring"), strategy="cp", phase="backward")
    assert back.payload_bytes is None
    assert back.reasons["payload_bytes"]
    gathered = rows(job(layout, sequence=131072, context_method="all_gather"), strategy="cp")
    assert [r.payload_bytes for r in gathered] == [2 * 131072 * 128 * 2] * 2
    heads = theory.ModelSpec(hidden=4096, layers=32, heads=32, kv_heads=8, ffn=11008, vocab=32000)
    found = rows(
        job(theory.LayoutSpec(cp=8), heads, sequence=32768, context_method="ulysses"), strategy="cp", phase="forward"
    )
    assert sum((r.per_layer or 0) * (r.wire_bytes or 0) for r in found) == 73_400_320  # published
    assert row(job(theory.LayoutSpec(cp=2, dp=2), heads, context_method="ring"), strategy="dp").axes == "dp+cp"


def test_experts() -> None:
    v3 = theory.model("deepseek-v3")
    j = job(theory.LayoutSpec(ep=8, dp=8), v3, sequence=4096, fp8_dispatch=True, data_parallel="zero1")
    found = {(r.phase, r.purpose): r for r in rows(j, strategy="ep")}
    assert found["forward", "token_dispatch"].payload_bytes == 242_221_056  # published
    assert found["forward", "token_combine"].payload_bytes == 469_762_048
    assert found["backward", "token_combine"].payload_bytes == 469_762_048
    assert found["forward", "token_dispatch"].per_micro_batch == (58,)
    # All eight ranks hold different experts: their gradients need no reduction.
    assert rows(j, axes="edp") == []
    more = job(theory.LayoutSpec(ep=8, dp=16), v3, data_parallel="zero1")
    grads = row(more, axes="edp", op="reduce_scatter")
    assert grads.step_payload_bytes == (58 * 256 * 3 * 7168 * 2048 // 8 * 4,)


def test_the_tied_embedding() -> None:
    model = theory.ModelSpec(hidden=8192, layers=8, heads=64, kv_heads=8, ffn=28672, vocab=128256, tied=True)
    r = row(job(theory.LayoutSpec(tp=8, pp=4), model), strategy="embedding")
    assert (r.payload_bytes, r.per_step, r.group_size) == (525_336_576, (1, 0, 0, 1), 2)  # published
    assert rows(job(theory.LayoutSpec(pp=4), model, schedule="ZBV"), strategy="embedding") == []


@pytest.mark.parametrize("layout", [
    theory.LayoutSpec(tp=2, cp=3, dp=2, pp=2), theory.LayoutSpec(tp=2, dp=4, pp=2, ep=4, etp=2),
    theory.LayoutSpec(tp=2, cp=2, dp=2, pp=2, order=("tp", "pp", "dp", "cp")),
])  # fmt: skip
def test_groups_partition_the_ranks(layout: theory.LayoutSpec) -> None:
    axes = [("tp",), ("cp",), ("dp",), ("pp",), ("dp", "cp")]
    axes += [("ep",), ("edp",)] if layout.order[-1] == "pp" else []
    for names in axes:
        groups = list(layout.groups(*names))
        assert sorted(r for g in groups for r in g) == list(range(layout.world_size))
        assert len({len(g) for g in groups}) == 1


def test_the_worst_group_counts() -> None:
    """Groups of five on nodes of eight: whole ones, 3 + 2 and 1 + 4."""
    assert theory.LayoutSpec(tp=5, dp=4).placement(8, "tp") == theory.Placement(5, 2, 3)


def test_orthogonal_axes_meet_in_one_rank() -> None:
    layout = theory.LayoutSpec(tp=2, cp=2, dp=2, pp=2)
    for a, b in product(layout.groups("tp"), layout.groups("dp")):
        assert len(set(a) & set(b)) <= 1
    assert sorted(layout.groups("tp"))[:2] == [(0, 1), (2, 3)]
    assert sorted(layout.groups("pp"))[0] == (0, 8)


def test_a_schedule_without_closed_form_is_simulated() -> None:
    p = theory.plan(job(theory.LayoutSpec(pp=4), schedule="ZBV"))
    assert p.bubble is not None
    assert p.bubble.kind == "simulated"
    one = theory.plan(job(theory.LayoutSpec(pp=4)))
    assert one.bubble is not None
    assert one.bubble.over_ideal_ratio == pytest.approx(3 / 16)
    assert one.bubble.over_step_ratio == pytest.approx(3 / 19)


def test_mfu_bounds_are_in_order() -> None:
    for layout in (theory.LayoutSpec(tp=8, pp=4, dp=2), theory.LayoutSpec(dp=64), theory.LayoutSpec(tp=8, pp=2)):
        p = theory.plan(job(layout))
        assert p.mfu_upper_ratio is not None
        assert p.mfu_nothing_hidden_ratio is not None
        assert 0 < p.mfu_nothing_hidden_ratio < p.mfu_upper_ratio <= 1
    full = theory.plan(job(theory.LayoutSpec(dp=64), recompute="full"))
    assert full.mfu_upper_ratio == pytest.approx(0.75)
    p = theory.plan(job(theory.LayoutSpec(tp=8, pp=4, dp=2)))
    assert p.tokens_per_step == 1 * 8192 * 16 * 2
    assert p.ideal_ns is not None
    assert p.structural_ns is not None
    assert p.exposed_if_unhidden_ns is not None
    assert p.mfu_upper_ratio == pytest.approx(p.ideal_ns / (p.ideal_ns * (1 + 3 / 16) + p.structural_ns))
    slow = p.ideal_ns / 0.803 * (1 + 3 / 16) + p.exposed_if_unhidden_ns
    assert p.mfu_nothing_hidden_ratio == pytest.approx(p.ideal_ns / slow)
    by_hand = 16 * 8192 * theory.token_flops(LLAMA, 8192) / 989e3
    assert full.ideal_ns == pytest.approx(by_hand)


def test_nothing_is_guessed() -> None:
    bare = theory.plan(theory.Job(LLAMA, theory.TrainingSpec(), theory.LayoutSpec(tp=8, pp=4, dp=2)))
    assert bare.mfu_upper_ratio is None
    assert bare.bubble is None
    assert bare.reasons["collectives.tp"] == "needs training.sequence_parallel"
    assert bare.reasons["collectives.dp"] == "needs training.data_parallel"
    p = theory.plan(theory.Job(LLAMA, replace(TRAINING, grad_dtype=None), theory.LayoutSpec(dp=2), None))
    (r,) = p.rows
    assert r.step_payload_bytes is None
    assert r.reasons["step_payload_bytes"] == "needs training.grad_dtype"
    assert r.expectation is None


@pytest.mark.parametrize(
    ("layout", "model", "training", "words"),
    [
        (theory.LayoutSpec(pp=3), LLAMA, {}, "80 is no multiple of 3"),
        (theory.LayoutSpec(tp=16, dp=2), LLAMA, {}, "8 is no multiple of 16"),
        (theory.LayoutSpec(tp=2, dp=2), theory.model("gpt3-175b"), {}, "padded"),
        (theory.LayoutSpec(pp=4), LLAMA, {"schedule": "DualPipe"}, "DualPipe"),
        (theory.LayoutSpec(dp=4), theory.model("mixtral-8x7b"), {"data_parallel": "fsdp"}, "FSDP of expert layers"),
        (theory.LayoutSpec(dp=4, ep=2), LLAMA, {}, "model.experts"),
        (theory.LayoutSpec(dp=6, ep=3), theory.model("mixtral-8x7b"), {}, "8 is no multiple of 3"),
        (theory.LayoutSpec(dp=4, tp=2, ep=2), theory.model("mixtral-8x7b"), {}, "without sequence parallelism"),
        (theory.LayoutSpec(dp=4, tp=2, ep=2, etp=2), theory.model("mixtral-8x7b"), {"sequence_parallel": True}, "etp"),
        (theory.LayoutSpec(dp=2), theory.model("deepseek-v3"), {"mtp": True}, "multi-token"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_is_said(
    layout: theory.LayoutSpec, model: theory.ModelSpec, training: dict[str, object], words: str
) -> None:
    p = theory.plan(job(layout, model, **training))
    reasons = [*p.reasons.values(), *(x for r in p.rows for x in r.reasons.values())]
    assert any(words in r for r in reasons), reasons


def test_an_axis_of_one_rank_may_stand_anywhere() -> None:
    plain = theory.LayoutSpec(tp=2, dp=4, pp=2, ep=4)
    shuffled = replace(plain, order=("tp", "dp", "pp", "cp"))
    assert list(shuffled.groups("ep")) == list(plain.groups("ep"))
    with pytest.raises(theory.OutsideDomain, match="slowest"):
        list(replace(plain, order=("tp", "pp", "dp", "cp")).groups("ep"))
    assert list(theory.LayoutSpec(dp=4, ep=4, order=("pp", "tp", "cp", "dp")).groups("ep")) == [(0, 1, 2, 3)]
