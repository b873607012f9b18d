"""Calls and bytes against the plan: exact, more, or different with what that means; MFU; inputs from the trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracekit as tk
from tracekit.analysis.expected.calls import Kind, Recording
from tracekit.analysis.expected.findings import findings_of
from tracekit.analysis.expected.machine import machine_of
from tracekit.analysis.expected.planned import ASK, explain, planned
from tracekit.analysis.expected.rows import Key, Sums, theory_rows
from tracekit.analysis.expected.timing import Timed
from tracekit.analysis.expected.utilisation import utilisation
from tracekit.errors import UsageError

Row = dict[str, Any]
H100 = "NVIDIA H100 80GB HBM3"
MODEL = {"hidden": 64, "layers": 4, "heads": 4, "kv_heads": 4, "ffn": 128, "vocab": 512}
TRAINING = {"micro_batch": 2, "micro_batches": 3, "sequence": 16, "recompute": "none"}
TP2 = {"degrees": {"tp": 2, "dp": 2}, "expert": {}, "order": ["tp", "dp"], "complete": True}
LAYER = 2 * 16 * 64 * 2  # b s h in 16 bit


def _sums(calls: dict[Key, dict[int, int]], ranks: int, size: int, dtype: str = "BFloat16") -> dict[Key, Sums]:
    """Per key {payload: calls a step} of every rank, one step each."""
    out = {}
    for key, found in calls.items():
        s = Sums(calls=ranks * sum(found.values()), ranks=set(range(ranks)), sizes={size})
        for r in range(ranks):
            total = [sum(found.values()), sum(p * n for p, n in found.items()), 0]
            s.per_step[r, 0] = total
        for i, (payload, n) in enumerate(found.items()):
            s.counted_payload[payload] += n * ranks
            s.payload[payload] += n * ranks
            kind = Kind(*key, "nccl", dtype, None, size, None, payload)
            s.kinds[i] = (kind, Timed(size, factor=1.0))
        out[key] = s
    return out


def _rows(sums: dict[Key, Sums], layout: Row | None = TP2, **tables: Any) -> list[Row]:
    recordings = [Recording(r, {}, "one-rank", None, H100, 8) for r in range(4)]
    machine = machine_of(recordings, {}, 4, [], {})
    found = planned(sums, {"model": MODEL, "training": TRAINING} | tables, layout, machine)
    return theory_rows(sums, {}, {}, machine, found)


FORWARD = Key("tp", "activation", "forward", "all_reduce", "0-1")
# a step: 2 a layer × 4 layers × 3 micro-batches, and the embedding's in each; the loss: 3 of 4 b s bytes
STEP = {LAYER: 24 + 3, 4 * 2 * 16: 9}


def test_tensor_calls_as_planned() -> None:
    (r,) = _rows(_sums({FORWARD: STEP}, 4, 2))
    assert (r["expected_calls_per_step"], r["plan"], r["plan_note"]) == (36, "as-planned", None)
    assert r["expected_step_payload_bytes"] == 27 * LAYER + 9 * 128
    assert r["expected_payload_bytes"] is None  # of two sizes


def test_recomputation_doubles_the_forward() -> None:
    (r,) = _rows(_sums({FORWARD: {p: 2 * n for p, n in STEP.items()}}, 4, 2))
    assert r["plan"] == "differs"
    assert r["plan_note"] == "2 × the planned calls: recomputation repeats the forward's"
    (f,) = findings_of([r | {"verdict": None}])
    assert (f["code"], f["measured"], f["expected"]) == ("differs-from-plan", 72, 36)


def test_gradients_in_fp32() -> None:
    key = Key("dp", "grad_reduce", "backward", "all_reduce", "0,2")
    # tied to no bucket size: only bytes are planned. Parameters of a tensor rank: 4 layers, embedding and head, norms
    layer = (4 * 64 * 64 + 3 * 64 * 128) // 2 + 2 * 64
    local = 4 * layer + 2 * 512 * 64 // 2 + 64
    training = TRAINING | {"sequence_parallel": False, "dtype": "bf16", "grad_dtype": "bf16"}
    (r,) = _rows(_sums({key: {local * 2: 1}}, 4, 2), training=training)
    assert (r["plan"], r["expected_step_payload_bytes"]) == ("as-planned", local * 2)
    (r,) = _rows(_sums({key: {local * 4: 1}}, 4, 2, "Float"), training=training)
    assert r["plan_note"] == "2 × the planned bytes: gradients in fp32, not 16 bit"
    # not said, it is read from the messages, and then nothing differs
    (r,) = _rows(_sums({key: {local * 4: 1}}, 4, 2, "Float"), training=training | {"grad_dtype": "fp32"})
    assert r["plan"] == "as-planned"


def test_explanations() -> None:
    gather = Key("zero3", "param_gather", "forward", "all_gather", None)
    assert "every micro-batch" in explain(gather, 4.0, 4.0)
    assert "reshard off" in explain(gather._replace(phase="backward"), 0.5, 0.5)
    assert "once a step" in explain(Key("zero3", "grad_reduce", "backward", "reduce_scatter", None), 0.25, 0.25)
    assert "virtual" in explain(Key("pp", "stage_transfer", "forward", "send", None), 2.0, 2.0)
    assert explain(FORWARD, 0.9, 0.9) == "0.9 × the planned calls"


def test_micro_batches_are_read_from_the_first_stage() -> None:
    layout = {"degrees": {"pp": 2}, "expert": {}, "order": ["pp"], "complete": True}
    sums = _sums({Key("pp", "stage_transfer", None, "send", "0-1"): {LAYER: 7}}, 1, 2)
    training = {"micro_batch": 2, "sequence": 16, "schedule": "1F1B", "recompute": "none"}
    found = planned(sums, {"model": MODEL, "training": training}, layout, machine_of([], {}, 2, [], {}))
    assert {"field": "training.micro_batches", "value": 7, "source": "trace"} in found.inputs
    (r,) = _rows(sums, layout, training=training)
    assert (r["expected_calls_per_step"], r["expected_payload_bytes"], r["plan"]) == (7, LAYER, "as-planned")


def test_what_is_missing_is_asked_for() -> None:
    machine = machine_of([], {}, 4, [], {})
    assert planned({}, {}, TP2, machine).missing == [ASK]
    found = planned({}, {"model": MODEL}, None, machine)
    assert found.plan is None
    assert "--layout" in found.missing[0]
    found = planned({}, {"model": MODEL, "training": {}}, TP2, machine)
    assert found.plan is not None
    assert any("training.sequence_parallel" in m for m in found.missing)
    with pytest.raises(UsageError, match="no field 'layer'"):
        planned({}, {"model": {"layer": 3}}, TP2, machine)


def test_utilisation_by_hand() -> None:
    one = Recording(0, {}, "one-rank", None, H100, 8, steps=[
        {"step": i, "complete": i > 0, "dur_ns": ns, "found_by": "torch.profiler"} for i, ns in enumerate((9, 10**6))
    ])  # fmt: skip
    layout = {"degrees": {"dp": 1}, "expert": {}, "order": ["dp"], "complete": True}
    training = TRAINING | {"dtype": "bf16"}
    found = planned({}, {"model": MODEL, "training": training}, layout, machine_of([one], {}, 1, [], {}))
    u = utilisation(found, [one])
    token = 4 * (6 * 64 * (2 * 64 + 2 * 64) + 18 * 64 * 128 + 6 * 64 * 16) + 6 * 64 * 512
    assert u["model_flops"] == token * 2 * 16 * 3
    assert u["step_ns"] == 10**6
    assert u["mfu_ratio"] == pytest.approx(token * 96 / 989e12 / 1e-3)
    assert u["hfu_ratio"] == u["mfu_ratio"]
    one.steps = [{"step": 0, "complete": True, "dur_ns": 5, "found_by": "whole-window"}]
    assert utilisation(found, [one])["mfu_ratio"] is None


def test_torchtitan_layers_are_those_of_its_model(shared: Path, tmp_path: Path) -> None:
    """Llama 3 debug model: a layer has 4·256² + 3·256·768 + 2·256 = 852,480 parameters, gathered in bf16."""
    config = tmp_path / "run.toml"
    config.write_text(
        "[layout]\ndp = 4\n[model]\nhidden = 256\nlayers = 6\nheads = 16\nkv_heads = 16\nffn = 768\nvocab = 2048\n"
        "[training]\nrecompute = 'none'\nmicro_batches = 1\n"
    )
    folder = shared / "corpus/felipemello1+torchtitan/torchtitan_4rank_obs-pr8a"
    result = tk.analyze(folder, workers=1, config=config, detail=False)
    found = {(r["purpose"], r["phase"]): r for r in result.document["theory"] if r["strategy"] == "zero3"}
    assert len(found) == 3
    for (purpose, _), r in found.items():
        assert r["expected_payload_bytes"] == 852_480 * (4 if purpose == "grad_reduce" else 2) == r["payload_bytes"]
        assert r["expected_calls_per_step"] == 6
        # the embedding's and the head's groups are not planned
        assert r["plan"] == "more-than-planned"
    sources = {i["field"]: i["source"] for i in result.document["theory_inputs"]["inputs"]}
    assert sources["training.grad_dtype"] == sources["training.data_parallel"] == "trace"
    assert sources["model.hidden"] == "given"


def test_megatron_forward_is_exactly_as_planned(shared: Path, tmp_path: Path) -> None:
    """40 layers × 2 all-reduces and the embedding's of 4 × 2048 × 4096 in fp16, 3 of the loss of 4 × 2048 fp32."""
    config = tmp_path / "run.toml"
    config.write_text(
        "[layout]\ntp = 8\n[model]\nhidden = 4096\nlayers = 40\nheads = 32\nkv_heads = 32\nffn = 16384\nvocab = 51200\n"
        "gated = false\n[training]\nrecompute = 'none'\nmicro_batch = 4\nmicro_batches = 1\nsequence = 2048\n"
        "dtype = 'fp16'\n"
    )
    folder = shared / "corpus/astra-sim+astra-sim/megatron_tp8_kineto"
    result = tk.analyze(folder, workers=1, config=config, detail=False)
    (r,) = [r for r in result.document["theory"] if r["strategy"] == "tp"]
    assert r["calls_per_step"] == r["expected_calls_per_step"] == 2 * 40 + 1 + 3
    assert r["step_payload_bytes"] == r["expected_step_payload_bytes"] == 81 * 67_108_864 + 3 * 32_768
    assert r["plan"] == "as-planned"
    # the whole step's compute would hide it at 72 GB/s; its transfers reach 195, so its algorithm is what exposes it
    assert r["hide_gbps"] < 100 < r["busbw_gbps"]
    assert r["structural_ns"] == r["exposed_ns"] - (417_511_375 - 50_099_000)


def test_mistakes_in_the_tables_show_before_any_trace_is_read(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    for text, message in (
        ("[model]\nhiden = 3\n", "no field 'hiden'"), ("[training]\nrecompute = 'some'\n", "training.recompute"),
        ("[hardware]\nname = 'h1000'\n", "no hardware 'h1000'"), ("model = 3\n", "model must be a table"),
    ):  # fmt: skip
        config.write_text(text)
        with pytest.raises(UsageError, match=message):
            tk.analyze(tmp_path / "none", config=config)


def test_labels_of_hybrid_sharding_and_undecided_zero() -> None:
    layout = {"degrees": {"dp_shard": 2, "dp_replicate": 2}, "expert": {}, "order": ["dp_shard", "dp_replicate"],
              "complete": True}  # fmt: skip
    gather = Key("zero3", "param_gather", "forward", "all_gather", "0-1")
    layer = (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) * 2
    (r,) = _rows(_sums({gather: {layer: 12}}, 4, 2), layout, training=TRAINING | {"data_parallel": "fsdp"})
    assert (r["expected_calls_per_step"], r["plan"]) == (12, "as-planned")
    scatter = Key("zero1|zero2", "grad_reduce", "backward", "reduce_scatter", "0-3")
    training = TRAINING | {"data_parallel": "zero1", "grad_dtype": "fp32"}
    flat = {"degrees": {"dp": 4}, "expert": {}, "order": ["dp"], "complete": True}
    (r,) = _rows(_sums({scatter: {4: 1}}, 4, 4), flat, training=training)
    assert r["expected_step_payload_bytes"] == (4 * layer // 2 + 2 * 512 * 64 + 64) * 4
    assert r["plan"] == "differs"


def test_messages_inside_a_kernel_count(tmp_path: Path) -> None:
    """The sample's blocking exchanges: of 4 messages a stage gets, 3 arrive in the kernel that sends another."""
    folder = Path(__file__).resolve().parents[3] / "sample_traces"
    config = tmp_path / "run.toml"
    text = (folder / "gpu-tp2-pp2-dp2.toml").read_text("utf-8")
    config.write_text(text.replace("[training]", "[training]\nrecompute = 'none'\ndtype = 'bf16'"))
    result = tk.analyze(folder / "gpu-tp2-pp2-dp2", workers=1, config=config, detail=False)
    rows = [r for r in result.document["theory"] if r["strategy"] in {"tp", "pp", "dp", "embedding"}]
    assert {(r["strategy"], r["plan"]) for r in rows} == {(s, "as-planned") for s in ("tp", "pp", "dp", "embedding")}
    for r in rows:
        if r["strategy"] == "pp":
            assert r["calls_per_step"] == r["expected_calls_per_step"] == 4
        assert r["verdict"] == "at_limit"
        assert r["ratio"] == pytest.approx(1, rel=1e-5)  # the simulator takes what theory expects
    assert "differs-from-plan" not in {f["code"] for f in result.document["findings"]}
