"""Rows of a Kineto file as torch 2.13 writes them: one key a line, times in microseconds with three decimals."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def us(ns: int) -> str:
    """Nanoseconds as microseconds with exactly three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def span(cat: str, name: str, pid: int | str, tid: int | str, ts: int, dur: int, args: str) -> str:
    """A complete event (`ph` X); `args` is the inside of its JSON object."""
    place = f'"pid": {_id(pid)},\n    "tid": {_id(tid)},'
    return (
        f'  {{\n    "ph": "X",\n    "cat": "{cat}",\n    "name": "{name}",\n    {place}\n'
        f'    "ts": {us(ts)},\n    "dur": {us(dur)}\n    ,\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def flow(ph: str, ident: int, pid: int, tid: int, ts: int) -> str:
    """One end of an `ac2g` arrow from a launch (s) to device work (f)."""
    bind = ',\n    "bp": "e"' if ph == "f" else ""
    return (
        f'  {{\n    "ph": "{ph}",\n    "id": {ident},\n    "pid": {pid},\n    "tid": {tid},\n    "ts": {us(ts)},\n'
        f'    "cat": "ac2g",\n    "name": "ac2g"{bind}\n  }}'
    )


def metadata(name: str, pid: int | str, tid: int, ts: int, args: str) -> str:
    """A metadata row (`ph` M)."""
    return (
        f'  {{\n    "ph": "M",\n    "name": "{name}",\n    "ts": {us(ts)},\n    "pid": {_id(pid)},\n'
        f'    "tid": {tid},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def instant(name: str, pid: str, tid: str, ts: int) -> str:
    """A global instant (`ph` i), which has no category."""
    return (
        f'  {{\n    "ph": "i",\n    \n    "s": "g",\n    "name": "{name}",\n    "pid": "{pid}",\n'
        f'    "tid": "{tid}",\n    "ts": {us(ts)}\n    \n  }}'
    )


def write_gzip(path: Path, text: str, level: int = 6) -> None:
    """Compress without a time stamp or a name, so that the same text gives the same bytes."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", level, raw, mtime=0) as out:
        out.write(text.encode())


def _id(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
