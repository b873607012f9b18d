"""The pieces of a comparison: steps used, noise, notes, metrics and gates."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.diff.causes import causes
from tracekit.analysis.diff.compare import compare
from tracekit.analysis.diff.gates import check, parse
from tracekit.analysis.diff.metrics import known, metric
from tracekit.analysis.diff.side import Mean, band, side, student
from tracekit.errors import UsageError

Row = dict[str, Any]


def tables(windows: list[list[int]], exposed: int | None = 100, wait: int | None = 40, complete: bool = True) -> Row:
    """A run: windows[step][rank] ns, with 100 ns of dp communication in each, 40 of them waiting."""
    cells = [(r, s, w) for s, row in enumerate(windows) for r, w in enumerate(row)]
    comm = exposed or 100
    head = [{"rank": r, "device": 0, "step": s} for r, s, _ in cells]
    times = {"total_ns": exposed, "hidden_ns": 0, "attributed_ns": exposed, "attributed_wait_ns": wait, "wait_ns": wait}
    moved = None if wait is None or exposed is None else exposed - wait
    times |= {"attributed_transfer_ns": moved, "transfer_ns": moved, "attributed_unsplit_ns": 0}
    last = len(windows) - 1
    return {
        "ranks": [{"rank": r, "used": True, "host": "n", "device_name": "G"} for r in range(len(windows[0]))],
        "steps": [h | {"complete": complete and 0 < h["step"] < last, "found_by": "x"} for h in head],
        "breakdown": [
            h | {"window_ns": w, "compute_only_ns": w - comm, "overlapped_ns": 0, "exposed_comm_ns": comm,
                 "fused_ns": 0, "exposed_copy_ns": 0, "idle_ns": 0}
            for h, (_, _, w) in zip(head, cells, strict=True)
        ],
        "exposure": [h | {"strategy": "dp", "purpose": "grad_reduce", "phase": None, "count": 1} | times for h in head],
        "findings": [{"severity": "warning", "code": "odd"}],
        "coverage": {"comm_ns": 100, "labelled_ns": 75},
        "sites": [{"strategy": "dp", "purpose": "grad_reduce", "phase": None, "op": "all_reduce", "group": "g",
                   "group_size": 2, "site": "backward", "ranks": 2, "count": 8, "payload_bytes": 64, "exposed_ns": 800, "total_ns": 800}],
    }  # fmt: skip


STEADY = [[1000, 1000]] * 4


def test_whole_steps_are_used_where_there_are_two() -> None:
    one = side(tables([[9000, 9000], [1000, 1200], [1100, 1300], [9000, 9000]]), "x")
    assert (one.steps, one.complete) == (2, True)
    assert one.window == Mean(1150.0, (1100.0, 1200.0))
    assert one.compute_of[1].value == 1150.0
    cut = side(tables([[1000, 1000], [1200, 1200], [1000, 1000]]), "x")
    assert (cut.steps, cut.complete) == (3, False)
    assert any("may cut" in n for n in compare(cut, cut)["notes"])


def test_quantiles_are_those_of_tables() -> None:
    """Two-sided 99 %, from published tables of Student's t."""
    for freedom, quantile in ((1, 63.657), (4, 4.604), (10, 3.169), (30, 2.750), (60, 2.660), (120, 2.617)):
        assert student(freedom) == pytest.approx(quantile, rel=0.002)


def test_noise_is_pooled() -> None:
    """By hand: variances 1 and 4 of 3 steps each, pooled 2.5, 4 degrees of freedom."""
    a, b = Mean(2.0, (1.0, 2.0, 3.0)), Mean(4.0, (2.0, 4.0, 6.0))
    assert band(a, b) == pytest.approx(4.604 * (2.5 * 2 / 3) ** 0.5)
    assert band(a, Mean(1.0, (1.0,))) is None
    assert band(Mean(1.0, (1.0, 1.0)), Mean(2.0, (2.0, 2.0))) == 0.0


def test_a_change_within_the_noise_is_none() -> None:
    a = side(tables([[1000] * 2, [900] * 2, [1100] * 2, [1000] * 2, [950] * 2, [0] * 2]), "a")
    b = side(tables([[1000] * 2, [1000] * 2, [1180] * 2, [990] * 2, [1050] * 2, [0] * 2]), "b")
    found = compare(a, b)
    assert found["parts"][0]["verdict"] == "same"
    assert found["parts"][0]["change_ns"] == pytest.approx(67.5)
    assert causes(a, b) == []


def test_what_is_not_comparable_is_said() -> None:
    a, b = side(tables(STEADY), "a"), side(tables([[1000] * 4], wait=None), "b")
    b.unlabelled_ratio = 0.9
    found = compare(a, b)
    text = "\n".join(found["notes"])
    for part in ("2 ranks against 4", "2 steps against 1", "noise is not known", "waiting and transfer", "25.0 % of A"):
        assert part in text
    assert found["parts"][0]["band_ns"] is None
    empty = tables(STEADY) | {"breakdown": [], "exposure": [], "steps": []}
    nothing = compare(a, side(empty, "b"))
    assert "cannot be compared" in nothing["sentence"]
    assert nothing["parts"][0]["verdict"] == "unknown"
    assert compare(side(empty, "a"), side(empty, "b"))["causes"] == []


def test_waiting_is_a_cause_only_where_no_other_explains_it() -> None:
    a = side(tables(STEADY), "a")
    late = side(tables([[1050, 1050]] * 4, exposed=150, wait=90), "b")
    [cause] = compare(a, late)["causes"]
    assert (cause["kind"], cause["where"], cause["cost_ns"]) == ("waiting", "dp grad_reduce", 50)
    slow = side(tables([[1050, 1080]] * 4, exposed=150, wait=90), "b")
    slow.compute_of[0].value = 900.0
    [first, *_] = compare(a, slow)["causes"]
    assert (first["kind"], first["where"]) == ("rank", "rank 1")
    assert "waiting" not in {c["kind"] for c in compare(a, slow)["causes"]}


def test_ranks_of_a_host_are_named_by_it() -> None:
    a, b = side(tables([[1000] * 4] * 4), "a"), side(tables([[1000, 1000, 1200, 1200]] * 4), "b")
    assert compare(a, b)["causes"][0]["where"] == "ranks 2, 3"
    a.hosts = {0: "n0", 1: "n0", 2: "n1", 3: "n1"}
    assert compare(a, b)["causes"][0]["where"] == "host n1 (ranks 2, 3)"
    assert compare(b, a)["causes"][0]["cost_ns"] == -200


def test_communication_of_one_side_only() -> None:
    other = tables(STEADY)
    for row in other["exposure"]:
        row["strategy"] = "zero1"
    found = compare(side(tables(STEADY), "a"), side(other, "b"))
    assert {(c["strategy"], c["verdict"]) for c in found["communication"]} == {("dp", "only-a"), ("zero1", "only-b")}
    assert found["causes"][0]["sentence"] == "strategies dp → zero1"


def test_metrics() -> None:
    one = side(tables(STEADY), "x")
    values = {n: metric(one, n).value for n in ("step_ns", "compute_ns", "exposed_ns", "exposed_ratio", "wait_ns")}
    assert values == {"step_ns": 1000, "compute_ns": 900, "exposed_ns": 100, "exposed_ratio": 0.1, "wait_ns": 40}
    assert metric(one, "exposed.dp_ratio").value == 0.1
    assert metric(one, "wait.dp_ns").value == 40
    assert metric(one, "overlap_ratio").value == 0.0
    assert metric(one, "findings.warning").value == 1
    assert metric(one, "findings.error").value == 0
    assert metric(one, "unlabelled_ratio").value == 0.25
    lone = side(tables(STEADY, wait=None), "x")
    for name in ("wait_ns", "wait.dp_ns", "bubble_ns", "exposed.tp_ns"):
        assert metric(lone, name).value is None
        assert metric(lone, name).reason
    untimed = side(tables(STEADY, exposed=None, wait=None), "x")
    assert metric(untimed, "exposed_ratio").value is None
    assert "tp" in (metric(one, "exposed.tp_ns").reason or "")


@pytest.mark.parametrize(
    ("gate", "passed"),
    [
        ("exposed.dp_ratio<0.2", True), ("exposed.dp_ratio < 5%", False), ("exposed.dp_ratio<=10%", True),
        ("step_ns<1us", False), ("step_ns<=1us", True), ("step_ns>0.9us", True), ("step_ns<+3%", False),
        ("step_ns<+30%", True), ("step_ns<=+200", True), ("step_ns<+199ns", False), ("compute_ns>-1%", True),
        ("exposed_ratio<+0.01", True), ("bubble_ns<1ms", False), ("bubble_ns?<1ms", True), ("findings.warning<1", False),
        ("idle_ns<+1%", True),
    ],
)  # fmt: skip
def test_gates(gate: str, passed: bool) -> None:
    a, b = side(tables([[800, 800]] * 4), "a"), side(tables(STEADY), "b")
    [row] = check([parse(gate)], b, a)
    assert row["passed"] is passed
    assert row["reason"]
    if gate.startswith("bubble"):
        assert row["value"] is None
        assert "no pipeline" in row["reason"]


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("", "position 1"), ("<3", "position 1"), ("step_ns", "position 8"), ("step_ns=3", "position 8"),
        ("step_ns<", "position 9"), ("step_ns<+", "position 9"), ("step_ns<3ms x", "position 13"), ("step_n<3", "position 1; known are step_ns"),
        ("step_ns<3%", "position 10"), ("exposed_ratio<3ms", "position 16"), ("total.dp_ns<3", "no metric"),
        ("exposed.dp<3", "no metric"), ("findings.errors<1", "no metric"),
    ],
)  # fmt: skip
def test_mistakes_are_located(gate: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(gate)


def test_changes_need_two_runs() -> None:
    with pytest.raises(UsageError, match="tracekit diff A B"):
        check([parse("step_ns<+3%")], side(tables(STEADY), "b"))


@given(st.text(max_size=30))
def test_any_text_is_a_gate_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert parse(text).text == text


def test_every_known_metric_can_be_asked_for() -> None:
    one = side(tables(STEADY), "x")
    for name in known():
        real = name.replace("STRATEGY", "dp")
        found = metric(one, real)
        assert (found.value is None) == (found.reason is not None)
        parse(f"{real}<1")


def test_fewer_bytes_do_not_explain_a_longer_call() -> None:
    """A hundredth of the bytes takes twice as long: the payload is told, and no cost is put down to it."""
    a, b = tables(STEADY, wait=None), tables([[1100, 1100]] * 4, exposed=200, wait=None)
    b["sites"][0] |= {"payload_bytes": 0.64}
    (cause,) = [c for c in causes(side(a, "a"), side(b, "b")) if c.kind == "payload"]
    assert cause.sentence == "dp grad_reduce moves 0.01 times the bytes"
    assert cause.cost_ns == 0
    (other,) = [c for c in causes(side(b, "b"), side(a, "a")) if c.kind == "payload"]
    assert other.sentence == "dp grad_reduce moves 100.00 times the bytes"
    assert other.cost_ns == 0
    b["sites"][0] |= {"payload_bytes": 6400}
    (cause,) = [c for c in causes(side(a, "a"), side(b, "b")) if c.kind == "payload"]
    assert cause.cost_ns == pytest.approx(100)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("step_ns<1e999", "too large"),
        ("step_ns<+1e999%", "too large"),
        ("exposed_ratio<5", "a ratio is 0 to 1"),
        ("exposed.dp_ratio<500%", "a ratio is 0 to 1"),
        ("idle_ratio<+2", "a ratio is 0 to 1"),
    ],
)
def test_gates_that_could_not_fail_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(text)


def test_ranks_of_recordings_without_steps_are_counted() -> None:
    bare = tables(STEADY) | {"steps": [], "breakdown": [], "exposure": []}
    found = compare(side(bare, "a"), side(tables(STEADY), "b"))
    assert (found["a"]["ranks"], found["a"]["steps"]) == (2, 0)
    assert [n for n in found["notes"] if "against" in n] == []
