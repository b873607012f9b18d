"""Ascend's communication.json: operations with times, waiting and groups; composed from the documented layout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import tracekit as tk
from tracekit.errors import BrokenInput, ForeignFormat, LimitExceeded, UnusableInput
from tracekit.parsers import identify, msprof, parse, parse_witness

if TYPE_CHECKING:
    from pathlib import Path

START = 1_713_174_287_407_957
GROUP = "13681369207305868844"


def operation(at: int | str | float = START, elapse: float | str = 0.06086, **more: Any) -> dict[str, Any]:
    """One operation; at: µs; times in ms."""
    time = {"Start Timestamp(us)": at, "Elapse Time(ms)": elapse, "Transit Time(ms)": 0.00126, "Wait Time(ms)": 0.01494,
            "Synchronization Time(ms)": 0.00714, "Idle Time(ms)": 0.04466, "Wait Time Ratio": 0.9222} | more  # fmt: skip
    return {
        "Communication Time Info": time,
        "Communication Bandwidth Info": {
            "RDMA": {"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Size Distribution": {}},
            "HCCS": {"Transit Size(MB)": 0.028575999999999997, "Size Distribution": {"0.004224": [6, 0.00736]}},
        },
    }


def write(path: Path, collective: dict[str, Any], p2p: dict[str, Any] | None = None) -> Path:
    path.write_text(json.dumps({"step3": {"collective": collective, "p2p": p2p or {}}}))
    return path


def test_an_operation_to_the_last_field(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x",
        {"hcom_broadcast__844_1_1@" + GROUP: operation(), "Total Op Info": operation()},
        {"hcom_receive__844_2_1@" + GROUP: operation(f"{START - 5}.25", "0.001")},
    )
    assert identify(path).name == "msprof-communication"
    (found,) = parse_witness(path)
    receive, broadcast = found.calls
    assert (receive.op_raw, receive.is_p2p, receive.group) == ("receive", True, GROUP)
    assert (receive.started_ns, receive.dur_ns) == ((START - 5) * 1000 + 250, 1_000)
    assert (broadcast.op_raw, broadcast.is_p2p, broadcast.seq, broadcast.payload_bytes) == (
        "broadcast",
        False,
        None,
        None,
    )
    assert (broadcast.started_ns, broadcast.dur_ns, broadcast.noticed) == (START * 1000, 60_860, False)
    assert broadcast.completed_ns == START * 1000 + 60_860
    assert broadcast.extra == {
        "name": "hcom_broadcast__844_1_1@" + GROUP, "step": "step3", "transit_ns": 1_260, "wait_ns": 14_940,
        "synchronization_ns": 7_140, "idle_ns": 44_660, "transit_bytes": {"HCCS": 28_576},
    }  # fmt: skip
    assert [(g.key, g.name, g.size, g.ranks) for g in found.groups] == [(GROUP, GROUP, None, None)]
    assert (found.meta.rank, found.source, found.health) == (None, "msprof", [])


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("hcom_allReduce__844_1_1@7", "all_reduce"), ("hcom_allGather__844_1_1@7", "all_gather"),
        ("hcom_reduceScatter__844_1_1@7", "reduce_scatter"), ("hcom_alltoallv__844_1_1@7", "all_to_all"),
        ("hcom_send__844_1_1@7", "send"), ("hcom_receive__844_1_1@7", "recv"),
        ("allreduce-bottom1@7", "all_reduce"),
    ],
)  # fmt: skip
def test_operations_in_the_tables(tmp_path: Path, name: str, op: str) -> None:
    (tmp_path / "rank_3").mkdir()
    write(tmp_path / "rank_3" / "communication.json", {name: operation()})
    result = tk.analyze(tmp_path, workers=1)
    (row,) = result.arrow("collectives").to_pylist()
    assert (row["op"], row["rank"], row["dur_ns"], row["payload_bytes"]) == (op, 3, 60_860, None)
    assert [t["exposed_ns"] for t in result.document["totals"]] in ([], [None])


def test_operations_without_a_time_are_counted_or_refused(tmp_path: Path) -> None:
    odd = {
        f"hcom_allReduce__{i}@7": operation(at, elapse)
        for i, (at, elapse) in enumerate(
            [("N/A", 1), (True, 1), (0, 1), (START, -1), (START, "1e9999"), (START, 1e30), ("9" * 99, 1), (START, None)]
        )
    }
    path = write(tmp_path / "x", {"hcom_allReduce__99@7": operation()} | odd)
    (found,) = parse_witness(path)
    assert len(found.calls) == 1
    assert [(h.count, h.severity) for h in found.health] == [(len(odd), "lost")]
    with pytest.raises(BrokenInput, match="without a usable time"):
        parse_witness(path, strict=True)


def test_what_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x", {"Total Op Info": operation()})
    with pytest.raises(UnusableInput, match="no operation"):
        parse_witness(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(BrokenInput, match="communication.json"):
        parse_witness(path)
    path.write_text(
        '{"step1": {"collective": {"hcom_allReduce__1@7": {"Communication Time Info": {"a": ' + "[" * 100_000
    )
    with pytest.raises(BrokenInput):
        parse_witness(path)
    monkeypatch.setattr(msprof, "MAX_BYTES", 10)
    with pytest.raises(LimitExceeded):
        parse_witness(path)
    other = tmp_path / "timeline"
    other.write_text(json.dumps([{"name": "hcom_allReduce__1@7", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]))
    with pytest.raises(ForeignFormat, match="msprof-analyze"):
        parse(other)


@pytest.mark.shared
def test_timelines_and_tables_of_ascend_are_still_named_and_refused(shared: Path) -> None:
    files = sorted((shared / "corpus" / "mindspore-ai+mindinsight").rglob("*.*"))
    assert {identify(f).name for f in files} == {"msprof"}
    assert not any(identify(f).readable or identify(f).witness for f in files)
