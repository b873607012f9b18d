"""Operation names, element counts and sizes of communication calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.label.kernels import base_name

if TYPE_CHECKING:
    from tracekit.label.rules import OpRule, Rules

TITLE = re.compile(r"(?:nccl|gloo|xccl|rccl|hccl|ucc|mpi):(\w+)(?:\s.*)?")
C10D = re.compile(r"c10d::(\w+)")
RECORD = "record_param_comms"


@dataclass(slots=True)
class OpTable:
    """Look-ups from every spelling to its `OpRule`."""

    by_c10d: dict[str, OpRule] = field(default_factory=dict)
    by_record: dict[str, OpRule] = field(default_factory=dict)
    by_title: dict[str, OpRule] = field(default_factory=dict)
    by_name: dict[str, OpRule] = field(default_factory=dict)
    words: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, rules: Rules) -> OpTable:
        """Index the operation rules."""
        table = cls()
        for op in rules.ops:
            table.by_name[op.name] = op
            table.by_c10d |= {f"c10d::{n}": op for n in op.c10d}
            table.by_record |= dict.fromkeys(op.records, op)
            table.by_title |= dict.fromkeys(op.titles, op)
            table.words += [(w, op.name) for w in op.kernels]
        table.words.sort(key=lambda w: -len(w[0]))  # reduce_scatter before reduce
        return table

    def of_host_name(self, name: str) -> OpRule | None:
        """Operation of a `c10d::…` operator or a `nccl:…` annotation."""
        if name in self.by_c10d:
            return self.by_c10d[name]
        title = TITLE.fullmatch(name)
        return self.by_title.get(title[1]) if title else None

    def of_kernel(self, name: str, family: str | None) -> str | None:
        """Operation a kernel's base name tells, or None (SendRecv, Generic and their like do not)."""
        base = base_name(name).lower()
        if family == "deepep":
            return next((w for w in ("dispatch", "combine", "barrier") if w in base), None)
        if "sendrecv" in base or "generic" in base:
            return None
        return next((op for word, op in self.words if word in base), None)


def normal_record(name: str, table: OpTable) -> str:
    """Operation of a "Collective name"; unknown spellings are kept as they are."""
    op = table.by_record.get(name)
    return op.name if op else name


def _elements(shape: Any) -> int | None:
    """Elements of one shape, or the sum over a list of shapes."""
    if not isinstance(shape, list):
        return None
    if all(isinstance(d, int) for d in shape):
        total = 1
        for d in shape:
            total *= d
        return total
    parts = [_elements(s) for s in shape]
    return None if any(p is None for p in parts) else sum(p for p in parts if p is not None)


def tensor_of(dims: list[Any] | None, position: int | None) -> tuple[Any, int | None]:
    """(shape, elements) of the tensor argument at `position`; an absent tensor has shape []."""
    if dims is None or position is None or position >= len(dims):
        return None, None
    shape = dims[position]
    return (None, None) if shape == [] else (shape, _elements(shape))


def dtype_of(types: list[Any] | None) -> str | None:
    """Element type of the first tensor argument; a TensorList hides its type."""
    first = types[0] if types else None
    return first if isinstance(first, str) and first not in {"", "TensorList", "Scalar", "ScalarList"} else None


def payload_bytes(in_nelems: int | None, out_nelems: int | None, dtype: str | None, rules: Rules) -> int | None:
    """max(in, out) * sizeof(dtype) on this rank; None when the size or the type is unknown."""
    size = rules.dtype_bytes.get(dtype or "")
    counts = [n for n in (in_nelems, out_nelems) if n is not None and n >= 0]
    return max(counts) * size if counts and size else None
