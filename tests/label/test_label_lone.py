"""Kernels without a record are labelled by recorded calls with the same kernel on the same stream, or not at all."""

from __future__ import annotations

import pytest
from micro import Micro, kernel_of

GATHER = "_allgather_base"


def job(desc: str = "mesh_cp", *, known: int = 3, stream: int = 20, other: str | None = None) -> Micro:
    m = Micro()
    for _ in range(2):
        m.b.kernel(m.at + 10, 5, kernel_of(GATHER), stream=20, corr=10_000 + m.corr)  # its launch is not in the file
        m.at += 1000
    for _ in range(known):
        m.call(GATHER, pg_desc=desc, stream=stream)
    if other is not None:
        m.call(GATHER, pg_desc=other, pg_name="4", stream=stream)
    return m


def lone(m: Micro) -> set[tuple[str, str | None, float | None]]:
    return {(c.label.strategy, c.label.tier, c.label.confidence) for c in m.calls() if c.call_ts is None}


def test_three_recorded_calls_of_one_label_label_their_like() -> None:
    calls = [c for c in job().calls() if c.call_ts is None]
    assert len(calls) == 2
    assert lone(job()) == {("cp", "C", 0.55)}
    assert {c.label.rule for c in calls} == {"pattern.same-kernel-and-stream"}
    assert "3 recorded calls" in calls[0].label.fired[-1].saw


@pytest.mark.parametrize(
    "case", [{"known": 2}, {"stream": 21}, {"other": "mesh_ep"}, {"desc": "default_pg"}],
    ids=["too few", "another stream", "another label on the stream", "no label to copy"],
)  # fmt: skip
def test_anything_less_leaves_them_unknown(case: dict[str, object]) -> None:
    assert {s for s, _, _ in lone(job(**case))} == {"unknown"}  # type: ignore[arg-type]
