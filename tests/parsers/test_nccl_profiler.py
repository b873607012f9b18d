"""Dumps of NCCL's profiler plugins, in the words of their writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.errors import BrokenInput, UnusableInput
from tracekit.parsers import identify, parse_witness

if TYPE_CHECKING:
    from pathlib import Path

HASH = 12_715_772_615_376_301_750
CLOCK = 1_765_223_116_927_674_080


def begin(cat: str, name: str, number: int, ts: float, args: str) -> str:
    return f'{{"name": "{name}", "cat": "{cat}", "ph": "b", "id": {number}, "pid": 77, "tid": 1, "ts": {ts:f}, "args": {{{args}}}}},'


def end(cat: str, name: str, number: int, ts: float) -> str:
    return f'{{"name": "{name}", "cat": "{cat}", "ph": "e", "id": {number}, "pid": 77, "tid": 1, "ts": {ts:f}}},'


def coll(number: int, *, rank: int = 1, dtype: str = '"ncclBfloat16"', channels: str = "nChannels") -> str:
    args = f'"SeqNum": {number}, "CommHash": {HASH}, "Rank": {rank}, "Count": 4096, "Datatype": {dtype}, "Algorithm": "RING", "Protocol": "LL", "{channels}": 4'
    return begin("COLL", "AllReduce", number, 100.5, args)


def channel(number: int, start: int, stop: int) -> str:
    return begin("GPU", "KernelCh", number, 1.0, f'"Channel": {number}, "StartGpuClk": {start}, "StopGpuClk": {stop}')


P2P = f'"CommHash": {HASH}, "Rank": 1, "Peer": 0, "Count": 8, "Datatype": "ncclFloat32", "nChannels": 16'


def test_a_finished_dump(tmp_path: Path) -> None:
    path = tmp_path / "dump_123_1.json"
    lines = [
        "[", begin("GROUP_API", "Group API", 0, 1.0, '"groupApiId": 0, "groupDepth":2'), coll(0),
        channel(0, CLOCK, CLOCK + 900), end("GPU", "KernelCh", 0, 2.0), channel(1, CLOCK + 100, CLOCK + 1000),
        end("COLL", "AllReduce", 0, 150.25), begin("P2P", "Send", 0, 3.0, P2P), end("P2P", "Send", 0, 4.0),
        end("GROUP_API", "Group API", 0, 5.0), "{}]",
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    assert identify(path).witness
    (witness,) = parse_witness(path)
    one, message = witness.calls
    assert (one.op_raw, one.seq, one.in_nelems, one.dtype, one.state) == ("AllReduce", 0, 4096, "BFloat16", "completed")
    assert (one.dur_ns, one.started_ns, one.completed_ns) == (1_000, CLOCK, CLOCK + 1_000)
    assert one.extra == {
        "algorithm": "RING", "protocol": "LL", "channels": 4, "begin_us": 100.5, "end_us": 150.25, "channels_timed": 2,
    }  # fmt: skip
    assert (message.op_raw, message.is_p2p, message.peer, message.dtype, message.dur_ns) == (
        "Send",
        True,
        0,
        "Float",
        None,
    )
    assert (witness.groups[0].comm_hash, witness.groups[0].own) == (f"{HASH:#x}", 1)
    assert witness.meta.extra["events"] == {"GROUP_API": 1}
    assert witness.health == []


def test_an_open_list_with_bare_words(tmp_path: Path) -> None:
    """A job that was killed, with a plugin that wrote names and pointers without quotes."""
    path = tmp_path / "x"
    api = begin(
        "P2P_API", "Send", 0, 0.0, '"count": 8, "datatype": ncclFloat32, "GraphCaptured":0, "Stream": 0x4142e90'
    )
    path.write_text("\n".join(["[", api, coll(0, dtype="9", channels="nMaxChannels"), coll(1)[:-30]]))
    (witness,) = parse_witness(path)
    (call,) = witness.calls
    assert (call.state, call.dtype, call.extra["channels"], call.dur_ns) == ("started", "BFloat16", 4, None)
    reasons = {h.reason: h.count for h in witness.health}
    assert reasons == {"line that is no event": 1, "call without an end: the job was killed or is running": 1}
    with pytest.raises(BrokenInput, match="no event"):
        parse_witness(path, strict=True)


@pytest.mark.parametrize(("start", "stop"), [(0, CLOCK), (CLOCK, 0), (CLOCK, CLOCK - 1)])
def test_a_channel_without_both_clocks_gives_no_time(tmp_path: Path, start: int, stop: int) -> None:
    path = tmp_path / "x"
    path.write_text("\n".join(["[", coll(0), channel(0, start, stop), end("COLL", "AllReduce", 0, 9.0)]))
    (witness,) = parse_witness(path)
    assert (witness.calls[0].dur_ns, witness.calls[0].started_ns) == (None, None)


def test_a_dump_without_collectives(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(begin("GROUP_API", "Group API", 0, 1.0, '"groupApiId": 0'))
    with pytest.raises(UnusableInput, match="NCCL_PROFILE_EVENT_MASK"):
        parse_witness(path)


@pytest.mark.shared
def test_the_public_dump(shared: Path) -> None:
    path = next((shared / "corpus").glob("pha-Z+nccl/**/*.jsonl"))
    found = sorted(parse_witness(path), key=lambda w: w.meta.rank or 0)
    assert [(w.meta.rank, w.meta.world_size) for w in found] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    calls = [c for w in found for c in w.calls]
    assert {(c.op_raw, c.in_nelems, c.dtype, c.extra["algorithm"]) for c in calls} == {
        ("AllReduce", 33_554_432, "Float", "RING")
    }
    assert [c.dur_ns for c in calls] == [625_500, 5_141_500, 9_597_500, 14_163_250]
    assert {w.groups[0].ranks for w in found} == {(0, 1, 2, 3)}
    first = next(w for w in found if w.meta.part == 0)
    assert first.meta.extra["events"]["ncclProfileKernelCh"] == 96
