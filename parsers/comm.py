"""Arguments of one communication record, normalised over all eras."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.model import CommArgs
from tracekit.parsers.convert import as_int

if TYPE_CHECKING:
    from tracekit.parsers.decode import Args

COMM_NAME = re.compile(r"record_param_comms|(?:_?c10d(?:_functional\w*)?|gloo|symm_mem)(?:::|:)")
"""Names of host rows whose arguments are kept."""
_U64 = 1 << 64


def _list(value: msgspec.Raw) -> list[Any] | None:
    if not bytes(value):
        return None
    try:
        decoded = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, list) else None


def _text(value: Any) -> str | None:
    """Interned: a job has few groups and types, and tens of thousands of records that name them."""
    return None if value is None else sys.intern(str(value))


def _int(value: Any) -> int | None:
    return value if type(value) is int else as_int(value)


def comm_args(a: Args) -> CommArgs:
    """Normalise: "msg size" of torch 2.2 is "msg nelems", "Process Group ID" of 2.3 is the name.

    Called for every record, so it skips what most records lack.
    """
    out = CommArgs(
        dims=_list(a.dims) if bytes(a.dims) else _list(a.old_dims),
        types=_list(a.types),
        concrete=_list(a.concrete),
        stack=_text(a.stack) or None,
    )
    if a.collective is None and a.pg_name is None and a.pg_id is None and a.group_size is None:
        return out
    out.collective = _text(a.collective)
    out.in_nelems = _int(a.in_nelems if a.in_nelems is not None else a.in_size)
    out.out_nelems = _int(a.out_nelems if a.out_nelems is not None else a.out_size)
    out.dtype = _text(a.dtype)
    out.group_size = _int(a.group_size)
    out.pg_name = _text(a.pg_name if a.pg_name is not None else a.pg_id)
    out.pg_desc = _text(a.pg_desc)
    out.ranks_text = _text(a.ranks_text)
    out.in_splits, out.out_splits = _text(a.in_splits), _text(a.out_splits)
    out.seq = _int(a.seq)
    if a.comms_id is not None and (comms_id := _int(a.comms_id)) is not None:
        out.comms_id = comms_id % _U64
    for name in ("rank_start", "rank_stride", "rank", "src_rank", "dst_rank"):
        value = getattr(a, name)
        if value is not None:
            setattr(out, name, _int(value))
    return out
