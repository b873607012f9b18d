"""Calls of a witness as columns: the objects are made when one of them is asked for, and only then."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from msgspec import NODEFAULT
from msgspec.structs import fields

from tracekit.model.witness import WitnessCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FIELDS = [(f.name, f.default) for f in fields(WitnessCall)]
_GET = [attrgetter(name) for name, _ in FIELDS]
_AT_ONCE = 500
"""Calls few enough to stay in the processor's cache while all fields are read."""


class CallColumns(MutableSequence[WitnessCall]):
    """`n` calls as columns by field, `n` values each; a field that has its default in all of them is absent."""

    def __init__(self, n: int, columns: Mapping[str, list[Any]]) -> None:
        self.columns = columns
        self._n = n
        self._made: list[WitnessCall] | None = None

    def calls(self) -> list[WitnessCall]:
        """The calls as objects, the same ones each time."""
        if self._made is None:
            every: list[Iterable[Any]] = [self.columns.get(name, repeat(default, self._n)) for name, default in FIELDS]
            self._made = [WitnessCall(*values) for values in zip(*every, strict=True)]
        return self._made

    def __len__(self) -> int:
        return self._n if self._made is None else len(self._made)

    @overload
    def __getitem__(self, at: int) -> WitnessCall: ...
    @overload
    def __getitem__(self, at: slice) -> list[WitnessCall]: ...
    def __getitem__(self, at: int | slice) -> WitnessCall | list[WitnessCall]:
        return self.calls()[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.calls()[at] = value

    def __delitem__(self, at: int | slice) -> None:
        del self.calls()[at]

    def insert(self, index: int, value: WitnessCall) -> None:
        """As `list.insert`."""
        self.calls().insert(index, value)

    def __iter__(self) -> Iterator[WitnessCall]:
        return iter(self.calls())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.calls() == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def untouched(self) -> bool:
        """Whether nobody has seen the objects, so that the columns still say all."""
        return self._made is None


def columns(calls: Sequence[WitnessCall]) -> Mapping[str, list[Any]]:
    """Columns of calls, as `CallColumns` has them."""
    if isinstance(calls, CallColumns) and calls.untouched:
        return calls.columns
    every: list[list[Any]] = [[] for _ in FIELDS]
    for start in range(0, len(calls), _AT_ONCE):
        part = calls[start : start + _AT_ONCE]
        for column, get in zip(every, _GET, strict=True):
            column.extend(map(get, part))
    return {
        name: column
        for (name, default), column in zip(FIELDS, every, strict=True)
        if default is NODEFAULT or column.count(default) < len(column)
    }
