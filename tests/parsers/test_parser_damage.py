"""One test a defect of real files: what is whole is kept, the rest is counted, strict reading refuses."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from kineto_writer import BASE, LAYOUTS, job, kernel, op, text

from tracekit.errors import BrokenInput, LimitExceeded, TracekitError, UnusableInput
from tracekit.parsers import documents, kineto, parse, source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("way")

HEAD = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": BASE}
N = len(job())


def body(layout: str = "classic", events: list[Any] | None = None) -> str:
    return text(job() if events is None else events, HEAD, {"traceName": "x"}, layout)


def read(path: Path, data: str | bytes, *, strict: bool = False, block: int = 8_192) -> Any:
    path.write_bytes(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
    return kineto.parse(path, strict=strict, block=block)


def reasons(trace: Any) -> dict[str, int]:
    return {h.reason: h.count for h in trace.health}


def total(trace: Any) -> int:
    return sum(trace.event_counts.values())


def both(path: Path, data: str | bytes, reason: str) -> Any:
    """Salvage says the reason; strict reading refuses, and names file and place."""
    trace = read(path, data)[0]
    assert any(reason in r for r in reasons(trace)), reasons(trace)
    with pytest.raises(BrokenInput, match="strict") as refused:
        read(path, data, strict=True)
    assert str(path) in str(refused.value)
    return trace


# ------------------------------------------------------------------------------- cut files


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("share", [0.3, 0.62, 0.97])
def test_truncated_json_keeps_whole_events(tmp_path: Path, layout: str, share: float) -> None:
    whole = body(layout)
    trace = both(tmp_path / "a.json", whole[: int(len(whole) * share)], "")
    assert N * (share - 0.15) < total(trace) <= N * (share + 0.1)
    assert any(h.severity == "lost" for h in trace.health)


def test_truncated_gzip_keeps_what_was_decompressed(tmp_path: Path) -> None:
    whole = gzip.compress(body().encode(), 1, mtime=0)
    trace = both(tmp_path / "a.json.gz", whole[: len(whole) // 2], "compressed stream ends early")
    assert total(trace) > N // 4


def test_corrupted_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(body().encode(), 1, mtime=0))
    whole[-8:-4] = b"\0\0\0\0"  # checksum
    trace = both(tmp_path / "a.json.gz", bytes(whole), "compressed stream is damaged")
    assert total(trace) == N


def test_gzip_of_several_members_is_one_stream(tmp_path: Path) -> None:
    data = body().encode()
    parts = [gzip.compress(data[:5_000]), gzip.compress(data[5_000:5_001]), gzip.compress(data[5_001:]), bytes(512)]
    trace = read(tmp_path / "a.json.gz", b"".join(parts))[0]
    assert (total(trace), trace.health) == (N, [])


def test_a_lone_tmp_file_is_read_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "trace.json.tmp").write_text(body()[:-3_000])
    assert total(parse(tmp_path / "trace.json.tmp")[0]) > N // 2


# ------------------------------------------------------------------------------- bad bytes


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ('say "hello" now', "unescaped quotes"),
        ('a "b", c', "unescaped quotes"),
        ("tab\there", "control or non-UTF-8"),
        ("nul\x01\x02", "control or non-UTF-8"),
        ("bad\udcff\udcfebytes", "control or non-UTF-8"),
        ("back\\slash", "control or non-UTF-8"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_unescaped_names_are_repaired(tmp_path: Path, name: str, reason: str, layout: str) -> None:
    whole = body(layout, [*job(), op("MARK", 5, 6, ext=9), *job()]).replace("MARK", name)
    trace = both(tmp_path / "a.json", whole, reason)
    assert total(trace) == 2 * N + 1
    assert sum(reasons(trace).values()) == 1


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "inf", "nan"])
def test_number_words_become_null(tmp_path: Path, word: str) -> None:
    whole = body().replace('"memory bandwidth (GB/s)": 3.5', f'"memory bandwidth (GB/s)": {word}')
    trace = both(tmp_path / "a.json", whole, "number word")
    assert total(trace) == N


def test_text_in_place_of_a_number_is_no_damage(tmp_path: Path) -> None:
    whole = (
        body()
        .replace('"memory bandwidth (GB/s)": 3.5', '"memory bandwidth (GB/s)": "N/A"')
        .replace('"bytes": 64', '"bytes": "N/A"')
    )
    trace = read(tmp_path / "a.json", whole, strict=True)[0]
    assert total(trace) == N
    assert trace.device.nbytes.max() == -1


def test_trailing_commas_and_missing_closers_are_accepted(tmp_path: Path) -> None:
    whole = body("compact", job())
    cut = whole[: whole.rindex("]")]
    assert total(read(tmp_path / "a.json", cut + ",")[0]) == N
    assert total(read(tmp_path / "b.json", cut + ",]}")[0]) == N
    inside = whole.replace('"cbid":211', '"cbid":211,"x":[1,],', 1).replace(",,", ",")
    assert total(both(tmp_path / "c.json", inside, "trailing comma")) == N


# ------------------------------------------------------------------------------- several documents


def test_concatenated_documents_give_one_trace_each(tmp_path: Path) -> None:
    traces = read(tmp_path / "a.json", body() + "\n" + body("compact"))
    assert [total(t) for t in traces] == [N, N]
    assert [t.meta.part for t in traces] == [0, 1]
    assert "a second document follows in the same file" in reasons(traces[0])


def test_interleaved_writers_keep_the_whole_events(tmp_path: Path) -> None:
    one, two = body("lines"), body("lines")
    cut = len(one) // 2
    traces = read(tmp_path / "a.json", one[:cut] + two + one[cut:])
    assert sum(map(total, traces)) > 1.4 * N
    assert any(h.severity == "lost" for t in traces for h in t.health)


def test_unescaped_log_text_after_the_events_costs_no_event(tmp_path: Path) -> None:
    logs = '"WARNING": ["a "quoted" line, with {braces} and [brackets", ]],\n  "traceName": "x"\n}'
    whole = body()
    trace = read(tmp_path / "a.json", whole[: whole.rindex('"traceName"')] + logs)[0]
    assert total(trace) == N


def test_bad_metadata_costs_only_itself(tmp_path: Path) -> None:
    whole = body().replace(
        '  "schemaVersion": 1,', '  "note": "an "odd" one",\n  "distributedInfo": {"rank": 5, "world_size": 8},'
    )
    trace = both(tmp_path / "a.json", whole, "metadata")
    assert (trace.meta.rank, trace.meta.world_size, trace.meta.base_ns) == (5, 8, BASE)


def test_duplicate_keys_the_last_counts(tmp_path: Path) -> None:
    whole = body().replace(
        '  "schemaVersion": 1,', '  "distributedInfo": {"rank": 1},\n  "distributedInfo": {"rank": 2},'
    )
    trace = read(tmp_path / "a.json", whole)[0]
    assert trace.meta.rank == 2
    assert "metadata key given twice (the last counts)" in reasons(trace)


# ------------------------------------------------------------------------------- odd times


def test_negative_durations_become_zero(tmp_path: Path) -> None:
    trace = both(tmp_path / "a.json", body(events=[kernel("k", 10, -5), kernel("m", 10, 5)]), "negative duration")
    assert trace.device.dur.tolist() == [0, 5]


def test_device_rows_without_a_time_are_dropped(tmp_path: Path) -> None:
    rows = [kernel("zero", 0, 0), kernel("late", 10_000_000_000_000, 5), kernel("stray", 0, 7)]
    trace = read(tmp_path / "a.json", body(events=rows))[0]
    assert [trace.names[i] for i in trace.device.name] == ["late"]
    assert reasons(trace)["device activity with time stamp 0"] == 2
    small = read(tmp_path / "b.json", body(events=[kernel("first", 0, 7), kernel("next", 9, 7)]))[0]
    assert (len(small.device), small.health) == (2, [])


def test_absurd_durations_are_flagged_and_impossible_ones_left_out(tmp_path: Path) -> None:
    rows = [kernel("k", 1_000 + i, 1, corr=i) for i in range(300)]
    rows += [kernel("long", 1_000, 9_000_000_000), kernel("never", 1_000, 10**16), {**kernel("x", 1, 1), "ts": "soon"}]
    trace = read(tmp_path / "a.json", body(events=rows))[0]
    assert len(trace.device) == 301
    found = reasons(trace)
    assert found["kernel with an impossible duration (over ten days)"] == 1
    assert found["kernel without a usable time"] == 1
    assert found["device activity that covers 200 or more later ones of its stream (kept)"] == 1
    assert found["device activity that runs more than 1 s past the end of the recording (kept)"] == 1


# ------------------------------------------------------------------------------- nothing usable


@pytest.mark.parametrize(
    "data",
    [
        text([], HEAD, {}, "classic"),
        text([], HEAD, {}, "compact"),
        text(job()[-4:], HEAD, {}, "classic"),
        '{"schemaVersion": 1, "deviceProperties": []}',
        '{"schemaVersion": 1, "deviceProperties": [',
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kern',
    ],
)
def test_files_without_work_say_so(tmp_path: Path, data: str) -> None:
    (tmp_path / "a.json").write_text(data)
    with pytest.raises(UnusableInput, match="a.json"):
        parse(tmp_path / "a.json")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UnusableInput, match=str(path)):
            parse(path)


# ------------------------------------------------------------------------------- limits


def test_deep_nesting_is_lost_without_a_traceback(tmp_path: Path) -> None:
    deep = (
        '{"ph": "X", "cat": "cpu_op", "name": "d", "ts": 1, "dur": 1, "args": {"a": '
        + "[" * 100_000
        + "]" * 100_000
        + "}}"
    )
    whole = body("compact").replace('"traceEvents":[', '"traceEvents":[' + deep + ",", 1)
    assert total(both(tmp_path / "a.json", whole, "")) == N


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "RATIO_FLOOR", 1 << 20)
    bomb = gzip.compress(b'{"schemaVersion": 1, "traceEvents": [' + b" " * (64 << 20))
    with pytest.raises(LimitExceeded, match="bomb"):
        read(tmp_path / "a.json.gz", bomb)


def test_one_endless_event_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_EVENT", 1 << 20)
    with pytest.raises(LimitExceeded, match="one event"):
        read(tmp_path / "a.json", '{"traceEvents": [{"name": "' + "x" * (3 << 20))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: '{"traceEvents": [' + '{"ph": "X", "name": "a "b" c", "cat": "cpu_op", "ts": 1, "dur": 1},' * n,
        lambda n: '{"traceEvents": [' + '{"ph": ' * n,
        lambda n: '{"traceEvents": [{"ph": "X"' + " " * 50 * n,
        lambda n: '{"traceEvents": [{"ph": "X", "name": "' + '"' * 20 * n,
        lambda n: '{"traceEvents": [' + "}" * 30 * n,
        lambda n: '{"traceEvents": [{"ph": "i"}]' + ', {"ph": "i"}]' * n,
        lambda n: '{"traceEvents": []' + '{"traceEvents": []' * (n // 10),
        lambda n: '{"a": "' * n,
    ],
    ids=["quotes", "openers", "blanks", "marks", "closers", "stray", "documents", "head"],
)
@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_much_damage_ends_in_a_message(tmp_path: Path, make: Callable[[int], str]) -> None:
    """Cost must be linear in the damage: with a quadratic step this would not end in any useful time."""
    with pytest.raises(TracekitError):
        raise UnusableInput(str(len(read(tmp_path / "a.json", make(60_000), block=1 << 20))))


def test_salvage_is_the_same_for_any_chunk(tmp_path: Path) -> None:
    damaged = body("lines").replace('"aten::mm"', '"aten "mm""').replace('"name": "ProfilerStep#7"', '"name": "x\x01"')
    results = []
    for block in (700, 4_000, 1 << 20):
        trace = read(tmp_path / "a.json", damaged, block=block)[0]
        results.append((trace.event_counts, [(h.reason, h.count) for h in trace.health], trace.host.ts.tolist()))
    assert results[0] == results[1] == results[2]


def test_odd_shapes_are_counted_not_fatal(tmp_path: Path) -> None:
    odd: list[Any] = [1, None, "x", [], {"ph": {"a": 1}}, {**op("a", 1, 1), "args": [1]}, {**op("b", 1, 1), "pid": [1]}]
    doc = {**HEAD, "traceEvents": [*json.loads(body("compact"))["traceEvents"], *odd]}
    trace = read(tmp_path / "a.json", json.dumps(doc))[0]
    assert len(trace.host) == 40 * 3 + 14 + 1
    assert sum(h.count for h in trace.health) >= 4
