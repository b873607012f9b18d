"""An execution trace beside the profiler's: the same record has one number in both (`rf_id`), so calls need no guess.

It adds what the trace cut or never recorded: whole split lists, sizes and types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.label.vocabulary import nelems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.label.enrich import Enricher
    from tracekit.label.vocabulary import Vocabulary
    from tracekit.model import Call, LabelledRank, Witness, WitnessCall

_AGREE = 0.9
"""Of the calls with equal numbers at least this share has to be of one operation: else it is another recording."""


def by_record(rank: LabelledRank, witness: Witness, op_of: Mapping[int, str]) -> dict[int, int]:
    """Position of the call → position of the witness' call with its number; empty for traces of different recordings.

    op_of: operation of each call of the witness that counts. A number that two calls have tells nothing.
    """
    numbered: dict[int, list[int]] = {}
    for at in op_of:
        if (number := witness.calls[at].rf_id) is not None:
            numbered.setdefault(number, []).append(at)
    pairs = {}
    for position, call in enumerate(rank.calls):
        hits = numbered.get(call.rf_id, ()) if call.rf_id is not None else ()
        if len(hits) == 1:
            pairs[position] = hits[0]
    fits = {p: at for p, at in pairs.items() if _alike(rank.calls[p], witness.calls[at], op_of[at])}
    return fits if len(fits) >= _AGREE * len(pairs) else {}


def _alike(call: Call, seen: WitnessCall, op: str) -> bool:
    mine, theirs = call.in_nelems, _count(seen.in_nelems, seen.in_sizes)
    return call.op == op and (mine is None or theirs is None or mine == theirs)


def _count(told: int | None, shapes: list[list[int]] | None) -> int | None:
    return nelems(shapes) if told is None else told


def fill_sizes(call: Call, seen: WitnessCall, words: Vocabulary, enricher: Enricher) -> None:
    """Sizes and type where the trace has none, and split lists where it has none or cut them ("...")."""
    for name in ("in_splits", "out_splits"):
        mine, whole = getattr(call, name), getattr(seen, name)
        if whole is not None and (mine is None or "..." in mine):
            setattr(call, name, whole)
    if call.in_nelems is not None or call.out_nelems is not None or call.payload_bytes is not None:
        return
    given, taken = _count(seen.in_nelems, seen.in_sizes), _count(seen.out_nelems, seen.out_sizes)
    known = [n for n in (given, taken) if n is not None]
    dtype = words.dtype(seen.dtype)
    if not known:
        return
    call.in_nelems, call.out_nelems = given, taken
    if call.dtype is None and dtype is not None:
        call.dtype = dtype.name
    if (size := words.dtype(call.dtype)) is not None:
        call.payload_bytes = max(known) * size.bytes
    enricher.told(call, "size")
