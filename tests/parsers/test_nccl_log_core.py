"""The compiled scanner of NCCL logs gives what the pure Python path gives: on lines of every version, odd and mutated."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from test_nccl_log import INITS, ODD, POINTER, TUNING, call, mixture, prefix
from test_parser_fuzz import mutate

from tracekit.errors import TracekitError
from tracekit.parsers import nccl_log, nccl_log_core
from tracekit.parsers.core import VARIABLE, asked
from tracekit.parsers.nccl_log_core import BREAKS, SAYS, LogCore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _built() -> None:
    if not nccl_log_core.available():
        if asked() == "1":
            pytest.fail("TRACEKIT_CORE=1, and the scanner of logs is not built")
        pytest.skip("the scanner of logs is not built")


def read(way: str, path: Path, **options: Any) -> Any:
    """What is read, in full, or the message why there is nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, {"compiled": "1", "pure": "0"}[way])
        try:
            return nccl_log.parse(path, **options)
        except TracekitError as e:
            return f"{type(e).__name__}: {e}"


def compare(path: Path, **options: Any) -> Any:
    """What the scanner reads, after it was found equal to what the pure path reads."""
    one = read("compiled", path, **options)
    assert one == read("pure", path, **options)
    return one


def scan(*lines: str) -> tuple[nccl_log_core.Lines, LogCore, list[bytes]]:
    """Columns, what made them, and the texts that were asked for."""
    asked_for: list[bytes] = []

    def number(text: bytes) -> int:
        asked_for.append(text)
        return len(asked_for)

    core = LogCore(number, number, number)
    return core.scan("\n".join(lines).encode()), core, asked_for


STAMP = "[2026-01-31 12:00:00] "
FORMS = {
    "usual": call(0),
    "timed": STAMP + call(0),
    "tagged": "[rank3]:" + call(0),
    "rccl": call(0).replace("recvbuff 0x7f80", "recvbuff 0x7f80 acc (nil)") + " task 3 globalrank 5",
    "no device": call(0).replace("[0] ", ""),
    "null": call(0).replace("0x7f00", "(nil)"),
    "big letters": call(0).replace("opCount 1a", "opCount 1A"),
}


@pytest.mark.parametrize("form", FORMS)
def test_calls_of_usual_forms_are_taken_with_their_numbers(form: str) -> None:
    found, core, texts = scan(FORMS[form])
    assert (found.count.tolist(), found.op_count.tolist(), found.begin.tolist()) == ([4096], [26], [0])
    assert found.stamp.tolist() == [0 if form == "timed" else -1]
    assert len(found.kind) == 0
    core.shapes(found.shape)
    head, fixed = texts[0].decode().split("\n")
    assert FORMS[form].removeprefix(STAMP).startswith(head + ": opCount 1")
    assert FORMS[form].endswith(" count 4096 " + fixed)


LEFT = {
    "twice": call(0) + call(0),
    "number": call(0).replace("opCount 1a", "opCount 0x1a"),
    "negative": call(0).replace("count 4096", "count -4096"),
    "too large": call(0).replace("count 4096", "count 9999999999999999999"),
    "too large in hex": call(0).replace("opCount 1a", "opCount 1234567890abcdef"),
    "two blanks": call(0).replace("sendbuff ", "sendbuff  "),
    "no word": call(0).replace("recvbuff", "receive"),
    "cut": call(0)[: call(0).index(" datatype")],
    "another time": "[2026-1-3 1:00:00] " + call(0),
    "long": call(0) + "x" * 2000,
    "long buffers": call(0).replace("0x7f00", "0x" + "7" * 2000),
}


@pytest.mark.parametrize("form", LEFT)
def test_calls_of_other_forms_are_left_to_the_pure_path(form: str) -> None:
    found, _, _ = scan(call(1), LEFT[form], call(1))
    assert len(found.shape) == 2
    assert (found.before.tolist(), found.kind.tolist()) == ([1], [BREAKS])
    begin, end = int(found.begins[0]), int(found.ends[0])
    assert (begin, end - begin) == (len(call(1)) + 1, len(LEFT[form]))


def test_other_lines_are_told_apart_and_what_is_not_of_nccl_is_left_out() -> None:
    told = prefix(0) + next(iter(TUNING))
    lines = ["loss 1.0", told, prefix(0) + "Using network IB", "", prefix(0) + INITS["2.18"].format(p="0x1", r=0), told]
    found, core, texts = scan(*lines)
    assert found.kind.tolist() == [0, SAYS, BREAKS, 0]
    assert core.choices(found.kind[found.kind >= 0]).tolist() == [1, 1]
    assert texts == [told.encode()]


def test_each_text_is_asked_for_once_until_it_is_to_be_forgotten() -> None:
    found, core, texts = scan(call(0), call(1), call(0))
    assert core.shapes(found.shape).tolist() == [1, 2, 1]
    assert core.shapes(found.shape).tolist() == [1, 2, 1]
    core.forget()
    assert core.shapes(found.shape[::-1]).tolist() == [3, 4, 3]
    assert len(texts) == 4


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More texts than a scanner keeps: another one takes its place, and is asked anew."""
    text = "\n".join(f"{prefix(0)}{i} Bytes -> Algo 1" for i in range(70_000)).encode()
    core = LogCore(len, len, len)
    first = core.scanner
    core.scan(text)
    assert core.scanner is first
    core.scan(text.replace(b" Bytes", b"0 Bytes"))
    core.scan(text.replace(b" Bytes", b"00 Bytes"))
    assert core.scanner is not first
    assert len(set(core.scan(text).kind.tolist())) == 70_000


def test_a_reader_does_not_notice_another_scanner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(LogCore):
        def scan(self, text: bytes) -> nccl_log_core.Lines:
            self._start()
            return super().scan(text)

    monkeypatch.setattr(nccl_log, "BLOCK", 20_000)
    path = tmp_path / "log"
    path.write_text("\n".join(mixture(2_000)))
    expected = read("compiled", path)
    monkeypatch.setattr(nccl_log, "LogCore", Forgetful)
    assert compare(path) == expected


@pytest.mark.parametrize("version", INITS)
def test_versions(tmp_path: Path, version: str) -> None:
    lines = []
    for i in range(400):
        rank = i % 2
        if i in (0, 1, 200, 201):
            lines.append(prefix(rank) + INITS[version].format(p=POINTER.format(rank), r=rank))
        line = call(rank, ("AllReduce", "Send", "Broadcast")[i % 3], count=i, opCount=f"{i:x}")
        lines.append(FORMS["rccl"].replace("opCount 1a", f"opCount {i:x}") if version == "rccl" else line)
        lines += [prefix(rank) + text for j, text in enumerate(TUNING) if i % 7 == j]
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    found = compare(path)
    assert sum(len(w.calls) for w in found) == 400


def test_mutated_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log, "BLOCK", 8_000)
    rng = random.Random(5)
    lines = [*FORMS.values(), *LEFT.values(), *(odd(call(1)) for odd in ODD.values()), *mixture(150)]
    path = tmp_path / "log"
    for i in range(150):
        rng.shuffle(lines)
        data = "\n".join(lines[: 60 if i % 5 else None]).encode()
        path.write_bytes(mutate(data, rng))
        compare(path, strict=i % 11 == 0)


def test_wrong_use_is_an_error_not_a_crash() -> None:
    scanner = nccl_log_core._log.Scanner()
    for wrong in ("text", None, 1):
        with pytest.raises(TypeError):
            scanner.scan(wrong)  # type: ignore[arg-type]
    for which, number in ((0, 0), (9, 0)):
        with pytest.raises(ValueError, match="no such text"):
            scanner.text(which, number)
    assert all(column == b"" for column in scanner.scan(b""))


def test_scanners_in_threads_do_not_meet() -> None:
    data = "\n".join(mixture(2_000)).encode()

    def run(_: int) -> list[bytes]:
        return nccl_log_core._log.Scanner().scan(data)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, range(8)))
    assert all(one == found[0] for one in found)
    assert len(np.frombuffer(found[0][3], np.int32)) > 1_500
