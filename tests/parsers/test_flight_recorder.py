"""Flight recorder dumps of every version, in both forms, and those that are no dumps."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flight_writer import T0, Rank, as_json

from tracekit.errors import BrokenInput, ForeignFormat, LimitExceeded, UnusableInput
from tracekit.parsers import identify, parse_witness

if TYPE_CHECKING:
    from tracekit.model import Witness

TP = ("7", "tp", (2, 3))
PP = ("9", "pp", (1, 3))


def rank3() -> Rank:
    """Rank 3 of 4: a completed all-reduce, a started one, a send."""
    out = Rank(3, TP, PP, world=4)
    return out.call("7").call("7", state="started").call("9", "send 1->0", "scheduled", thread_name="pt_autograd_0")


def read(tmp_path: Path, content: Any) -> Witness:
    """Parse one dump, given as bytes or as what is to be pickled."""
    path = tmp_path / "dump"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=2))
    (found,) = parse_witness(path)
    return found


def without(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    """A dict without some keys."""
    return {k: v for k, v in raw.items() if k not in names}


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_newest_version_is_read_to_the_last_field(tmp_path: Path, form: str) -> None:
    raw = rank3().raw()
    found = read(tmp_path, as_json(raw) if form == "json" else raw)
    assert (found.meta.rank, found.meta.world_size, found.version, found.source) == (3, 4, "2.10", "flight-recorder")
    assert found.meta.nccl_version == "2.27.5"
    first, second, send = found.calls
    assert (first.op_raw, first.group, first.seq, first.p2p_seq, first.op_id, first.record) == (
        "nccl:all_reduce", "7", 1, None, 1, 7,
    )  # fmt: skip
    assert (first.created_ns, first.started_ns, first.completed_ns) == (T0 + 10**6, T0 + 10**6 + 5, T0 + 10**6 + 900)
    assert first.noticed
    assert (second.state, second.completed_ns) == ("started", None)
    assert (send.is_p2p, send.p2p_seq, send.peer, send.state) == (True, 1, 0, "scheduled")
    assert (send.in_sizes, send.dtype, send.thread_name) == ([[4, 8]], "BFloat16", "pt_autograd_0")
    assert send.frames == (() if form == "json" else ("/job/train.py(12): step",))
    groups = {g.name: g for g in found.groups}
    assert (groups["7"].desc, groups["7"].ranks, groups["7"].own) == ("tp", (2, 3), 1)
    assert (groups["7"].last_enqueued, groups["7"].last_started, groups["7"].last_completed) == (2, None, 1)
    assert found.lost == 7
    assert found.health == []


def test_groups_without_calls_get_their_counters_by_order(tmp_path: Path) -> None:
    raw = rank3().raw()
    raw["pg_status"]["0"] |= {"last_enqueued_collective": 41, "last_completed_collective": 40}
    groups = {g.name: g for g in read(tmp_path, raw).groups}
    assert (groups["0"].last_enqueued, groups["0"].last_completed) == (41, 40)


def test_counters_that_fit_no_name_are_left_out(tmp_path: Path) -> None:
    raw = rank3().raw()
    raw["pg_status"]["8"] = {"last_enqueued_collective": 41}
    found = read(tmp_path, raw)
    assert {g.name: g.last_enqueued for g in found.groups} == {"0": None, "7": 2, "9": 1}
    assert [h.count for h in found.health] == [2]


def test_version_2_1_has_no_counters(tmp_path: Path) -> None:
    raw = without(rank3().raw("2.1"), "pg_status", "comm_lib_version")
    raw["entries"] = [without(e, "timeout_ms", "thread_id", "thread_name") for e in raw["entries"]]
    found = read(tmp_path, raw)
    assert [c.seq for c in found.calls] == [1, 2, 0]
    assert {g.last_enqueued for g in found.groups} == {None}


def test_version_1_4_names_groups_by_number(tmp_path: Path) -> None:
    raw = without(rank3().raw("1.4"), "pg_status", "comm_lib_version")
    raw["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                        "1": {"name": "7", "desc": "tp", "ranks": "[2, 3]"}}  # fmt: skip
    raw["entries"] = [
        without(e, "process_group", "collective_seq_id", "p2p_seq_id", "is_p2p", "input_dtypes", "output_dtypes")
        | {"seq_id": 5 + i, "duration_ms": 1.5}
        for i, e in enumerate(raw["entries"][:2])
    ]
    found = read(tmp_path, raw)
    assert [(c.group, c.seq, c.dtype, c.dur_ns) for c in found.calls] == [
        ("7", 5, None, 1_500_000),
        ("7", 6, None, 1_500_000),
    ]


def test_torch_2_2_wrote_a_bare_list(tmp_path: Path) -> None:
    entries = [
        {"pg_id": 0, "seq_id": 3, "profiling_name": "nccl:all_reduce", "input_sizes": [[2]], "output_sizes": [[2]],
         "time_created_us": 1_700_000_000_000_000, "frames": [], "state": "scheduled", "retired": False}
    ]  # fmt: skip
    found = read(tmp_path, entries)
    assert (found.version, found.meta.rank) == (None, None)
    assert (found.calls[0].group, found.calls[0].seq, found.calls[0].created_ns) == ("#0", 3, 1_700_000_000 * 10**9)


def test_the_ring_is_put_in_order(tmp_path: Path) -> None:
    raw = rank3().raw()
    raw["entries"] = raw["entries"][1:] + raw["entries"][:1]
    assert [c.record for c in read(tmp_path, raw).calls] == [7, 8, 9]


def test_a_dump_without_calls_still_tells_its_groups(tmp_path: Path) -> None:
    raw = Rank(3, TP, PP, world=4).raw()
    for content in (raw, as_json(raw)):
        found = read(tmp_path, content)
        assert (found.calls, found.meta.rank, len(found.groups), found.lost) == ([], 3, 3, None)


def test_gloo_writes_its_groups_over_one_without_a_name(tmp_path: Path) -> None:
    raw = rank3().raw() | {"pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}}}
    found = read(tmp_path, raw)
    assert [(g.key, g.ranks) for g in found.groups] == [("7", None), ("9", None)]
    assert found.meta.rank is None


def test_groups_of_different_ranks_tell_no_rank(tmp_path: Path) -> None:
    raw = rank3().raw()
    raw["pg_config"]["7"]["ranks"] = "[0, 1]"
    found = read(tmp_path, raw)
    assert found.meta.rank is None
    assert found.health


def test_entries_that_hold_no_call_are_counted_or_refused(tmp_path: Path) -> None:
    raw = rank3().raw()
    raw["entries"] += [{"record_id": 1}, 5]
    found = read(tmp_path, raw)
    assert (len(found.calls), found.health[0].count, found.health[0].severity) == (3, 2, "lost")
    with pytest.raises(BrokenInput, match="profiling_name"):
        parse_witness(tmp_path / "dump", strict=True)


@pytest.mark.parametrize("value", [None, "x", [], {}, [[1.5]], -1, 2**70, True])
def test_fields_of_another_kind_are_unknown(tmp_path: Path, value: object) -> None:
    raw = rank3().raw()
    for e in raw["entries"]:
        e |= dict.fromkeys(set(e) - {"profiling_name", "record_id"}, value)
    raw |= {"pg_config": {"7": value}, "pg_status": {"1": value}, "version": value}
    assert len(read(tmp_path, raw).calls) == 3


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


NAMES = b"X\x09\x00\x00\x00pg_configX\x0c\x00\x00\x00profiling_name"
HOSTILE = {
    "global": b"cos\nsystem\n(S'true'\ntR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "instance": b"\x80\x02(ios\nsystem\n.",
    "build": b"\x80\x02}}b.",
    "persistent": b"\x80\x02Pname\n.",
    "extension": b"\x80\x02\x82\x01.",
    "10 GB of bytes": b"\x80\x02\x8e" + (10 << 30).to_bytes(8, "little") + b"x.",
    "memo number": b"\x80\x02]r\xff\xff\xff\x7f.",
    "nested lists": b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "nested tuples": b"\x80\x02)" + b"\x85" * 1_000 + b".",
    "marks": b"\x80\x02" + b"(" * 1_000 + b".",
    "no mark": b"\x80\x02]e.",
    "empty stack": b"\x80\x02a.",
    "cut": pickle.dumps(Rank(3, TP).call("7").raw(), protocol=2)[:-30],
    "other data": pickle.dumps({"pg": 1}, protocol=2),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    from tracekit.parsers.flight_recorder import parse

    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(UnusableInput, match="dump"):
        parse(path)


def test_no_code_of_a_pickle_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    raw = rank3().raw() | {"extra": _Touch(mark)}
    with pytest.raises(BrokenInput, match="not opened"):
        read(tmp_path, raw)
    assert not mark.exists()


def test_a_file_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.parsers.flight_recorder.MAX_BYTES", 100)
    with pytest.raises(LimitExceeded, match="100 bytes"):
        read(tmp_path, rank3().raw())


def test_other_files_are_no_witnesses(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}]}')
    with pytest.raises(ForeignFormat):
        parse_witness(tmp_path / "t.json")
    assert not identify(tmp_path / "t.json").witness


def test_all_dumps_of_the_corpus_tell_their_rank(shared: Path) -> None:
    seen = 0
    for folder in sorted((shared / "corpus").glob("*/fr_*")):
        for path in sorted(folder.glob("_dump_*")):
            (found,) = parse_witness(path)
            assert found.meta.rank == int(path.name.removeprefix("_dump_"))
            assert (found.meta.world_size, found.version, found.health) == (16, "2.9", [])
            assert all(g.last_enqueued is not None and g.ranks for g in found.groups)
            seen += 1
    assert seen == 48


def test_recordings_read_alike_in_both_forms(shared: Path) -> None:
    for path in sorted((shared / "recordings").glob("*/fr_rank0.pickle")):
        (rich,), (plain,) = parse_witness(path), parse_witness(path.with_suffix(".json"))
        told = [[(c.op_raw, c.group, c.seq, c.in_sizes, c.created_ns) for c in w.calls] for w in (rich, plain)]
        assert told[0] == told[1]
        assert all(c.frames for c in rich.calls)
        assert [g.last_enqueued for g in rich.groups] == [g.last_enqueued for g in plain.groups]
