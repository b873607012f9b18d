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


def comm_args(a: Args) -> CommArgs:
    """Normalise: "msg size" of torch 2.2 is "msg nelems", "Process Group ID" of 2.3 is the name."""
    comms_id = as_int(a.comms_id)
    return CommArgs(
        collective=_text(a.collective),
        in_nelems=as_int(a.in_nelems if a.in_nelems is not None else a.in_size),
        out_nelems=as_int(a.out_nelems if a.out_nelems is not None else a.out_size),
        dtype=_text(a.dtype),
        group_size=as_int(a.group_size),
        pg_name=_text(a.pg_name if a.pg_name is not None else a.pg_id),
        pg_desc=_text(a.pg_desc),
        ranks_text=_text(a.ranks_text),
        rank_start=as_int(a.rank_start),
        rank_stride=as_int(a.rank_stride),
        rank=as_int(a.rank),
        src_rank=as_int(a.src_rank),
        dst_rank=as_int(a.dst_rank),
        seq=as_int(a.seq),
        comms_id=None if comms_id is None else comms_id % _U64,
        in_splits=_text(a.in_splits),
        out_splits=_text(a.out_splits),
        dims=_list(a.dims) if bytes(a.dims) else _list(a.old_dims),
        types=_list(a.types),
        concrete=_list(a.concrete),
    )
