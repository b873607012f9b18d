"""Mutated small files: a trace or a deliberate error, never a traceback; damage is never silent."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING

import pytest
from kineto_writer import BASE, LAYOUTS, job, text

from tracekit.errors import TracekitError
from tracekit.parsers import parse

if TYPE_CHECKING:
    from pathlib import Path

HEAD = {"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 2}, "baseTimeNanoseconds": BASE}


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Truncate, flip, splice, duplicate or shuffle; several times."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        a, b = sorted(rng.randrange(len(out) + 1) for _ in range(2))
        b = min(b, a + 3_000)
        kind = rng.randrange(6)
        if kind == 0:
            del out[a:]
        elif kind == 1 and out:
            for _ in range(rng.randint(1, 8)):
                out[rng.randrange(len(out))] = rng.choice(b'"{}[],:\\\n\0\xff 0x')
        elif kind == 2:
            del out[a:b]
        elif kind == 3:
            out[a:a] = out[a:b]
        elif kind == 4:
            piece = out[a:b]
            del out[a:b]
            at = rng.randrange(len(out) + 1)
            out[at:at] = piece
        else:
            out[a:a] = rng.choice(
                [b"NaN", b'"', b"}", b"]", b"{", b'{"ph": "X",', b'"traceEvents": [', b"\x00" * 9, b"\\"]
            )
        if not out:
            out = bytearray(b"{")
    return bytes(out)


@pytest.mark.parametrize("seed", range(30))
def test_mutations_end_in_a_trace_or_a_message(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "m.json"
    messages: list[str] = []
    data = text(job(20), HEAD, {"traceName": "x"}, LAYOUTS[seed % len(LAYOUTS)]).encode()
    for i in range(12):
        mutated = mutate(data, rng)
        if i % 4 == 3:
            mutated = mutate(gzip.compress(data, 1, mtime=0), rng)
        path.write_bytes(mutated)
        for strict in (False, True):
            try:
                traces = parse(path, strict=strict)
            except TracekitError as e:
                messages.append(str(e))
                continue
            assert traces
            assert all(len(t.host) or len(t.device) for t in traces)
    assert all(str(path) in message for message in messages)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_cut_is_silent(tmp_path: Path, layout: str) -> None:
    """Wherever a file is cut inside its events, health says so."""
    whole = text(job(6), HEAD, {"traceName": "x"}, layout)
    start, end = whole.index('"traceEvents"') + 400, whole.rindex("]")
    path = tmp_path / "c.json"
    for cut in range(start, end, max(1, (end - start) // 60)):
        path.write_text(whole[:cut])
        try:
            traces = parse(path)
        except TracekitError:
            continue
        assert any(h.severity == "lost" for t in traces for h in t.health), cut
