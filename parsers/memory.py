"""How the process's memory is handled while millions of small objects come and go."""

from __future__ import annotations

import ctypes
import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's settings in `mallopt`."""
_LARGE = 2 << 20
"""A block of at least this many bytes has pages of its own and gives them back when it is freed; a chunk of a file,
which comes and goes thousands of times, is smaller.
"""
_MOST = 32 << 20
"""The highest threshold that glibc documents: blocks above have pages of their own."""
_KEPT = 16 << 20
"""Free bytes at the heap's end that stay for later."""


def split_large() -> None:
    """Keep large columns out of the heap, and all smaller blocks in it; a no-op where there is no glibc.

    Left to itself glibc first gives each block above 128 KiB back to the kernel, which costs a fifth of a load in page
    faults, and later puts everything into the heap, where what is freed between small blocks stays with the process.
    """
    _glibc("mallopt", _MMAP_THRESHOLD, _LARGE)
    _glibc("mallopt", _TRIM_THRESHOLD, _KEPT)


def reuse() -> None:
    """Take almost all blocks from the heap and keep there what is freed; a no-op where there is no glibc.

    For steps in which columns of some MiB come and go by the hundred: new pages for each double their page faults.
    """
    _glibc("mallopt", _MMAP_THRESHOLD, _MOST)
    _glibc("mallopt", _TRIM_THRESHOLD, 2 * _MOST)


def give_back() -> None:
    """Return what was freed to the system (glibc keeps it); a no-op elsewhere."""
    _glibc("malloc_trim", 0)


def _glibc(name: str, *values: int) -> None:
    try:
        getattr(ctypes.CDLL(None), name)(*values)
    except (OSError, AttributeError, TypeError):
        return


@contextmanager
def without_gc() -> Iterator[None]:
    """Keep the cycle collector off: it costs half of a load, and none of the objects is in a cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
