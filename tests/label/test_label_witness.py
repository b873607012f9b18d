"""Flight recorder dumps alone: groups, layout and labels of what they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flight_writer import Rank

import tracekit as tk
from tracekit.label import load_rules
from tracekit.label.witness import issued, label_witness
from tracekit.parsers import parse_witness

if TYPE_CHECKING:
    from pathlib import Path

TP = ("1", "TENSOR_MODEL_PARALLEL_GROUP", (0, 1))
PP = ("2", "PIPELINE_MODEL_PARALLEL_GROUP", (0, 2))


def test_calls_carry_group_size_peer_and_label(tmp_path: Path) -> None:
    rank = Rank(0, TP, PP, world=4)
    rank.call("1", "_all_gather_base", input_sizes=[[4, 8]], output_sizes=[[8, 8]], thread_name="pt_autograd_0")
    rank.call("2", "send 0->1").call("2", "coalesced").call("1", "broadcast")
    rank.call("1", "_reduce_scatter_base", input_sizes=[[8, 8]], output_sizes=[[4, 8]])
    (witness,) = parse_witness(rank.write(tmp_path))
    rules = load_rules()
    labelled = label_witness(witness, rules)
    gather, send, broadcast, _ = labelled.calls
    assert issued(witness, rules.vocabulary) == [0, 1, 3, 4]
    assert (gather.op, gather.members, gather.seq, gather.payload_bytes) == ("all_gather", (0, 1), 1, 128)
    assert (gather.label.strategy, gather.label.phase) == ("sp", "backward")
    assert (send.op, send.dst_rank, send.label.strategy, send.label.phase) == ("send", 2, "pp", None)
    assert broadcast.label.phase is None
    assert not len(labelled.activities)
    assert [h.count for h in labelled.health] == [1]


def test_exposed_communication_of_dumps_is_null_with_a_reason(tmp_path: Path) -> None:
    for r in range(2):
        Rank(r, TP, world=2).call("1").write(tmp_path)
    result = tk.analyze(tmp_path, workers=1)
    totals = result.arrow("totals").to_pylist()
    assert [t["reason"] for t in totals] == ["compute-unknown"] * 2
    assert {t[n] for t in totals for n in ("exposed_ns", "comm_ns", "idle_ns", "overlap_ratio")} == {None}
    assert [t["collectives"] for t in totals] == [1, 1]
    ranks = result.arrow("ranks").to_pylist()
    assert [(r["rank"], r["identity"]) for r in ranks] == [(0, "name"), (1, "name")]  # one group of both
    assert "compute is unknown" in result.to_text()
    assert "%" not in result.to_text().split("data")[0]


def test_a_dump_without_groups_gets_its_rank_from_its_name(tmp_path: Path) -> None:
    rank = Rank(1, world=2).call("0")
    raw = rank.raw() | {"pg_config": {}}
    import pickle

    (tmp_path / "dump_1").write_bytes(pickle.dumps(raw, protocol=2))
    row = tk.analyze(tmp_path, workers=1).arrow("ranks").to_pylist()[0]
    assert (row["rank"], row["identity"]) == (1, "name")


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("fr_gpu_error_1st", {"tp": 2, "pp": 4, "dp+cp": 2, "ep": 4}),
        ("fr_gpu_error_2nd", {"tp": 4, "pp": 2, "dp+cp": 2, "ep": 8}),
        ("fr_lock_gil_1st", {"tp": 4, "pp": 2, "dp+cp": 2, "ep": 8}),
    ],
)
def test_layout_and_labels_of_the_corpus(shared: Path, name: str, degrees: dict[str, int]) -> None:
    folder = shared / "corpus" / "NVIDIA+nvidia-resiliency-ext" / name
    result = tk.analyze(folder, workers=1)
    text = result.document["layout"]["inferred"]["text"]
    assert {k: int(v) for k, v in (part.split("=") for part in text.split())} == degrees
    rows = result.arrow("collectives").to_pylist()
    assert rows
    expected = {"PIPELINE_MODEL_PARALLEL_GROUP": {"pp"}, "EXPERT_MODEL_PARALLEL_GROUP": {"ep"},
                "TENSOR_MODEL_PARALLEL_GROUP": {"tp", "sp", "housekeeping"}}  # fmt: skip
    for r in rows:
        assert r["strategy"] != "unknown"
        assert r["strategy"] in expected.get(r["group_desc"], {r["strategy"]})
        if r["group_desc"] == "TENSOR_MODEL_PARALLEL_GROUP" and r["op"] in ("all_gather", "reduce_scatter"):
            assert r["strategy"] == "sp"
