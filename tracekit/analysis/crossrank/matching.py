"""The same call on all ranks: by the id the job recorded, by the group's sequence number, or by order.

Never by device stream, by time alone or by position from the start of a file. What cannot be told is left
unmatched, with a reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracekit.analysis.crossrank.align import END_SKEW_NS, Aligned, Refused, align, align_by_ends, equal_steps
from tracekit.analysis.crossrank.clocks import align_clocks
from tracekit.analysis.crossrank.columns import median
from tracekit.analysis.crossrank.flat import gathered
from tracekit.analysis.crossrank.gaps import LEAST, match_with_gaps, outside_steps, rivalled, strangers
from tracekit.analysis.crossrank.matches import HOW, Matches
from tracekit.analysis.crossrank.sequences import Contents, Signatures, sequence
from tracekit.analysis.crossrank.streams import Stream, find_streams
from tracekit.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.analysis.crossrank.align import Sequence as CallSequence
    from tracekit.analysis.crossrank.clocks import Clock
    from tracekit.analysis.crossrank.columns import RankCalls

_TRUST = 0.95
"""Sequence numbers of a group are believed when at least this share of them agrees in operation and size."""
_ENOUGH = 8
"""Calls that must fit before ranks without a named group are taken for one group."""


class Matched(Struct):
    """All matches, and why each call without a match has none: part → row → reason."""

    matches: Matches = field(default_factory=lambda: Matches.of([]))
    unmatched: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, matches: Matches) -> None:
        """Matches of a stream beside those that it has."""
        self.matches = Matches.joined([self.matches, matches]) if len(self.matches) else matches

    def leave(self, part: int, rows: Iterable[int], reason: str) -> None:
        """Note why rows have no match."""
        for row in rows:
            self.unmatched[part].setdefault(row, reason)


def match(parts: Sequence[RankCalls], *, ids: bool = True) -> Matched:
    """Match the calls of all recordings of a run.

    What is found without doubt aligns the clocks, and these may decide what was in doubt.

    ids: False ignores recorded ids and sequence numbers (to test order against them).
    """
    streams = find_streams(parts)
    contents = Contents(parts)
    found = [_match_stream(parts, s, contents, ids, None) for s in streams.streams]
    doubtful = [i for i, f in enumerate(found) if any(r in _DOUBT for w in f.unmatched.values() for r in w.values())]
    if doubtful:
        every = Matches.joined([f.matches for f in found])
        clocks = align_clocks(parts, every.chosen(np.flatnonzero(every.how != _ASSUMED)))
        if any(c.aligned and c.method != "same-host" and c.pairs for c in clocks):
            for i in doubtful:
                again = _match_stream(parts, streams.streams[i], contents, ids, clocks)
                if len(again.matches.row) > len(found[i].matches.row):
                    found[i] = again
    out = Matched(Matches.joined([f.matches for f in found]))
    for part, rows in streams.left_out.items():
        out.unmatched[part] |= rows
    for one in found:
        for part, rows in one.unmatched.items():
            out.unmatched[part] |= rows
    return out


_REFUSED = frozenset({"contents-differ", "steps-differ", "clocks-differ", "order-differs", "ambiguous"})
_DOUBT = frozenset({"ambiguous", "clocks-differ", "order-differs", "contents-differ", "group-unknown"})


def _match_stream(
    parts: Sequence[RankCalls], stream: Stream, contents: Contents, ids: bool, clocks: Sequence[Clock] | None
) -> Matched:
    out = Matched()
    signatures = Signatures(contents, stream)
    left = {p: np.ones(len(rows), np.bool_) for p, rows in stream.rows.items()}  # of the calls of each recording
    if ids and stream.kind == "group":
        _by_comms_id(parts, stream, left, signatures, out)
        if not _several_groups(parts, stream, left):
            _by_seq(parts, stream, left, signatures, out)
    rest = {p: stream.rows[p][flags].tolist() for p, flags in left.items() if flags.any()}
    reason = None
    if not all(flags.all() for flags in left.values()):
        reason = "no-id"  # the others of the stream were told apart by ids: order says nothing of these
    elif _several_groups(parts, stream, left):
        reason = "groups-of-one-name"
    elif len({parts[p].rank for p in rest}) < len(rest):
        reason = "several-recordings-of-a-rank"
    if reason is None:
        _by_order(parts, stream, rest, signatures, clocks, out)
    else:
        for p, rows in rest.items():
            out.leave(p, rows, reason)
    return out


def _several_groups(parts: Sequence[RankCalls], stream: Stream, left: dict[int, NDArray[np.bool_]]) -> bool:
    """True when more ranks have calls under a group's name than the group has members."""
    if stream.members is not None or stream.size is None:
        return False
    return len({parts[p].rank for p, flags in left.items() if flags.any()}) > stream.size


def _by_comms_id(
    parts: Sequence[RankCalls], stream: Stream, left: dict[int, NDArray[np.bool_]], signatures: Signatures, out: Matched
) -> None:
    keyed = {p: (parts[p].comms[rows], left[p] & parts[p].has_comms[rows]) for p, rows in stream.rows.items()}
    _by_key(stream, keyed, signatures, "comms-id", out)
    for p, (_, has) in keyed.items():
        left[p] &= ~has


def _by_seq(
    parts: Sequence[RankCalls], stream: Stream, left: dict[int, NDArray[np.bool_]], signatures: Signatures, out: Matched
) -> None:
    """By sequence number, unless the numbers of this group contradict operation and size too often."""
    keyed = {}
    for p, rows in stream.rows.items():
        seq = parts[p].number["seq"][rows]
        keyed[p] = (seq, left[p] & (seq != NO_TIME))
    trial = Matched()
    _by_key(stream, keyed, signatures, "seq", trial)
    right = len(trial.matches.row)
    if not right:
        return
    wrong = _contradicting(parts, keyed, trial) + _across_steps(parts, trial)
    if wrong > (1 - _TRUST) * (wrong + right):
        return
    out.add(trial.matches)
    for p, reasons in trial.unmatched.items():
        for row, reason in reasons.items():
            out.leave(p, [row], reason)
    for p, (_, has) in keyed.items():
        left[p] &= ~has


Keyed = dict[int, tuple[Any, Any]]
"""Part → (key of each of its calls in the stream, whether it has one)."""


def _contradicting(parts: Sequence[RankCalls], keyed: Keyed, trial: Matched) -> int:
    """Rows that speak against their numbers: `conflict`, and no counterpart though another recording was under way.

    What was recorded before the first or after the last call of all others says nothing.
    """
    ranges = {p: (int(keys[has].min()), int(keys[has].max())) for p, (keys, has) in keyed.items() if has.any()}
    wrong = 0
    for p, reasons in trial.unmatched.items():
        others = [span for q, span in ranges.items() if q != p]
        seq = parts[p].number["seq"]
        wrong += sum(
            reason == "conflict" or any(low <= int(seq[row]) <= high for low, high in others)
            for row, reason in reasons.items()
        )
    return wrong


def _across_steps(parts: Sequence[RankCalls], trial: Matched) -> int:
    """Rows that equal numbers tie to calls of other steps, where markers number the steps."""
    found = trial.matches
    unmarked = np.int64(NO_TIME)
    steps = [p.number["step"] if p.markers else np.full(len(p), unmarked) for p in parts]
    step = gathered(found.part, found.row, steps)
    low = np.minimum.reduceat(np.where(step == NO_TIME, np.iinfo(np.int64).max, step), found.first)
    return int(found.size[low < np.maximum.reduceat(step, found.first)].sum())


def _by_key(stream: Stream, keyed: Keyed, signatures: Signatures, how: str, out: Matched) -> None:
    """Match rows of equal key; several rows of one key (a coalesced group) by their order.

    Rows with a key that contradict each other in number, operation or size are left unmatched: `conflict`.
    """
    key = np.concatenate([keys[has] for keys, has in keyed.values()])
    if not len(key):
        return
    row = np.concatenate([stream.rows[p][has] for p, (_, has) in keyed.items()])
    part = np.concatenate([np.full(int(has.sum()), p, np.int64) for p, (_, has) in keyed.items()])
    code = np.concatenate([signatures.of[p][has] for p, (_, has) in keyed.items()])
    order = np.argsort(key, kind="stable")  # a stream has its parts and their rows in order
    key, row, part, code = key[order], row[order], part[order], code[order]
    n = np.arange(len(key))
    new_key = np.append(True, key[1:] != key[:-1])  # a run: the rows of one key on one part
    new_run = new_key | np.append(True, part[1:] != part[:-1])
    run, number = np.cumsum(new_run) - 1, np.cumsum(new_key) - 1
    first = np.flatnonzero(new_key)
    place = n - np.flatnonzero(new_run)[run]  # within its run
    length = np.bincount(run)[run]
    lead = code[first[number] + np.minimum(place, length[first[number]] - 1)]
    runs = np.bincount(number[new_run])
    same = np.logical_and.reduceat((length == length[first[number]]) & (code == lead), first)
    lone, good = (runs == 1)[number], ((runs > 1) & same)[number]
    for reason, which in (("no-counterpart", lone), ("conflict", ~lone & ~good)):
        for p, r in zip(part[which].tolist(), row[which].tolist(), strict=True):
            out.leave(p, [r], reason)
    at = np.flatnonzero(good)
    if place.any():
        at = at[np.lexsort((part[at], place[at], number[at]))]
    cut = np.flatnonzero((np.diff(number[at]) != 0) | (np.diff(place[at]) != 0)) + 1
    sizes = np.diff(cut, prepend=0, append=len(at)) if len(at) else cut
    ways = np.full(len(sizes), HOW.index(how), np.int64)
    out.add(Matches([stream], np.zeros_like(ways), ways, sizes, part[at], row[at]))


def _by_order(
    parts: Sequence[RankCalls],
    stream: Stream,
    left: dict[int, list[int]],
    signatures: Signatures,
    clocks: Sequence[Clock] | None,
    out: Matched,
) -> None:
    """Align every recording with one of them; calls at one place of the common order match."""
    if len(left) == 1:
        for p, rows in left.items():
            out.leave(p, rows, "no-counterpart")
        return

    sequences = {
        p: sequence(parts, stream, p, signatures, code, clocks[p] if clocks else None)
        for p, code in signatures.of.items()
    }
    scoped = sequences
    if stream.kind != "p2p":
        scoped = {p: replace(sequences[p], code=code) for p, code in signatures.scoped().items()}
    base = _reference(sequences)
    places: dict[int, dict[int, int]] = {base: {i: i for i in range(len(left[base]))}}
    how: dict[int, str] = {}
    friends = _all_friends if any("gloo" in parts[p].text["family"][1] for p in left) else _friends
    fits = 0
    for p in sorted(left):
        if p == base:
            continue
        one, other = sequences[base], sequences[p]
        found = _alignment(stream, scoped, sequences, base, p, friends)
        if isinstance(found, Aligned):
            pairs = {j + found.shift: j for j in range(len(left[p]))}
            places[p], odd = friends(one, other, pairs)
            how[p] = "order-with-gaps" if odd else "order"
            fits = max(fits, min(len(left[base]), len(left[p]) + found.shift) - max(found.shift, 0))
            out.leave(p, (left[p][j] for j in odd), "contents-differ")
            if stream.kind == "p2p" and (unsure := outside_steps(one, other, places[p])):
                places[p] = {i: j for i, j in places[p].items() if j not in unsure}
                out.leave(p, (left[p][j] for j in unsure), "ambiguous")
        elif steps := equal_steps(one, other):
            pairs = {i: j for a, b in steps for i, j in zip(a.tolist(), b.tolist(), strict=True)}
            places[p], odd = friends(one, other, pairs)
            how[p] = "order-in-step"
            fits = max(fits, len(places[p]))
            taken = set(places[p].values())
            out.leave(p, (left[p][j] for j in odd), "contents-differ")
            out.leave(p, (r for j, r in enumerate(left[p]) if j not in taken), found.reason)
        else:
            out.leave(p, left[p], found.reason)
    _check_beyond(left, sequences, base, places, friends, out)
    if stream.kind != "assumed":
        _fill_gaps(left, sequences, base, places, how, out)
    if stream.kind == "assumed" and (why := _not_one_group(parts, stream, sequences, places, fits)):
        for p in places:
            out.leave(p, left[p], why)
        return
    _collect(stream, left, places, how, out)


def _alignment(
    stream: Stream,
    scoped: dict[int, CallSequence],
    sequences: dict[int, CallSequence],
    base: int,
    p: int,
    friends: Callable[..., tuple[dict[int, int], list[int]]],
) -> Aligned | Refused:
    """The one shift of a recording against the reference; refused where ends would fall together elsewhere, too."""
    found = align(scoped[base], scoped[p]) if stream.kind != "p2p" else Refused("contents-differ")
    if found == Refused("contents-differ"):  # the same calls may stand in other scopes on other ranks
        found = _aligned(stream, sequences[base], sequences[p])
    if isinstance(found, Aligned) and friends is _friends and rivalled(sequences[base], sequences[p], found.shift):
        return Refused("ambiguous")
    return found


def _all_friends(a: CallSequence, b: CallSequence, pairs: dict[int, int]) -> tuple[dict[int, int], list[int]]:
    """All pairs: workers of gloo end when a CPU is free, which tells nothing."""
    del a, b
    return pairs, []


def _friends(a: CallSequence, b: CallSequence, pairs: dict[int, int]) -> tuple[dict[int, int], list[int]]:
    """The pairs (place in a → in b) that can be one call, and what is left of b."""
    both = [(i, j) for i, j in pairs.items() if 0 <= i < len(a)]
    if not both:
        return pairs, []
    i, j = (np.array(column, np.intp) for column in zip(*both, strict=True))
    odd = set(j[strangers(a, b, i, j)].tolist())
    return {i: j for i, j in pairs.items() if j not in odd}, sorted(odd)


def _check_beyond(
    left: dict[int, list[int]],
    sequences: dict[int, CallSequence],
    base: int,
    places: dict[int, dict[int, int]],
    friends: Callable[..., tuple[dict[int, int], list[int]]],
    out: Matched,
) -> None:
    """Take out calls beyond the reference's recording that the others do not share: fitting it tells nothing there."""
    beyond = {p: {at: j for at, j in m.items() if not 0 <= at < len(left[base])} for p, m in places.items()}
    first = max(beyond, key=lambda p: len(beyond[p]))
    for p in beyond:
        doubtful = {j for at, j in beyond[p].items() if at in beyond[first]}
        if p == first or not doubtful:
            continue
        common = {places[first][at]: j for at, j in places[p].items() if at in places[first]}
        odd = doubtful.intersection(friends(sequences[first], sequences[p], common)[1])
        if len(common) < LEAST and friends is _friends:  # too few to tell friends
            odd = doubtful
        places[p] = {at: j for at, j in places[p].items() if j not in odd}
        out.leave(p, (left[p][j] for j in odd), "contents-differ")


def _fill_gaps(
    left: dict[int, list[int]],
    sequences: dict[int, CallSequence],
    base: int,
    places: dict[int, dict[int, int]],
    how: dict[int, str],
    out: Matched,
) -> None:
    """Match recordings that fit no shift and have rows left, by `match_with_gaps`, where that tells more.

    Calls that only such recordings have get places of their own behind all others.
    """
    lacking = [
        p for p in left
        if p != base and how.get(p) != "order" and any(out.unmatched[p].get(r) in _REFUSED for r in left[p])
    ]  # fmt: skip
    if not lacking:
        return
    found = match_with_gaps(sequences, base)
    several = Counter(p for call in found.calls for p in call)
    known = {(p, j): place for p, mapping in places.items() if p not in lacking for place, j in mapping.items()}
    own = max(place for place in known.values()) + 1
    where = [next((known[at] for at in call.items() if at in known), own + n) for n, call in enumerate(found.calls)]
    for p in lacking:
        if several[p] <= len(places.get(p, ())):
            continue
        how[p] = "order-with-gaps"
        places[p] = {place: call[p] for place, call in zip(where, found.calls, strict=True) if p in call}
        taken = set(places[p].values())
        for j, row in enumerate(left[p]):
            out.unmatched[p].pop(row, None)
            if j not in taken:
                out.leave(p, [row], "contents-differ")


def _aligned(stream: Stream, a: CallSequence, b: CallSequence) -> Aligned | Refused:
    """The alignment by one shift. Messages may wait long for their receiver, so that whole steps tell more there."""
    if stream.kind == "p2p" and sum(len(left) for left, _ in equal_steps(a, b)) == len(a) == len(b):
        return Refused("whole-steps")
    found = align(a, b)
    if stream.kind == "p2p" and found == Refused("ambiguous"):
        return align_by_ends(a, b)
    return found


def _reference(sequences: dict[int, CallSequence]) -> int:
    """The recording to align the others with: the longest of the contents that most of them have."""
    codes = {p: s.code.tobytes() for p, s in sequences.items()}
    often = Counter(codes.values())
    return min(codes, key=lambda p: (-often[codes[p]], -len(codes[p]), p))


def _collect(
    stream: Stream, left: dict[int, list[int]], places: dict[int, dict[int, int]], how: dict[int, str], out: Matched
) -> None:
    parts = np.repeat(np.array([*places], np.int64), [len(mapping) for mapping in places.values()])
    place = np.fromiter((at for mapping in places.values() for at in mapping), np.int64, len(parts))
    row = np.fromiter((left[p][j] for p, mapping in places.items() for j in mapping.values()), np.int64, len(parts))
    order = np.lexsort((parts, place))
    parts, place, row = parts[order], place[order], row[order]
    first = np.flatnonzero(np.diff(place, prepend=place[:1] - 1))
    size = np.diff(first, append=len(place))
    alone = first[size == 1]
    for p, r in zip(parts[alone].tolist(), row[alone].tolist(), strict=True):
        out.leave(p, [r], "no-counterpart")
    code = np.full(int(parts.max(initial=0)) + 1, -1, np.int64)
    for p, way in how.items():
        code[p] = HOW.index(way)
    ways = np.maximum.reduceat(code[parts], first) if len(first) else first  # the least trusted of its recordings
    ways = np.where(ways < 0, _WITH_GAPS, ways) if stream.kind != "assumed" else np.full(len(first), _ASSUMED, np.int64)
    several = size > 1
    keep = np.repeat(several, size)
    ways, size = ways[several], size[several]
    out.add(Matches([stream], np.zeros_like(ways), ways, size, parts[keep], row[keep]))


_ASSUMED, _WITH_GAPS = HOW.index("assumed-group"), HOW.index("order-with-gaps")


def _not_one_group(
    parts: Sequence[RankCalls],
    stream: Stream,
    sequences: dict[int, CallSequence],
    places: dict[int, dict[int, int]],
    fits: int,
) -> str | None:
    """Why ranks whose calls name no group cannot be taken for one group; None when they can.

    They must all show these calls, on comparable clocks, fit by causality over enough calls, and leave them together.
    """
    if len(places) < len(stream.rows) or fits < _ENOUGH or not all(parts[p].comparable for p in places):
        return "group-unknown"
    base = next(iter(places))
    for p, mapping in places.items():
        loose = 2 if (sequences[p].slack > END_SKEW_NS).any() else 1  # expert kernels end less sharply
        if p != base and not _leave_together(sequences[base].stop, sequences[p].stop, mapping, loose):
            return "group-unknown"
    return None


def _leave_together(a: NDArray[np.int64], b: NDArray[np.int64], places: dict[int, int], loose: int) -> bool:
    """Whether calls end together on two ranks, but for one clock difference: closely, and closer than they follow.

    Ranks of different groups in step with each other pass the laws of causality, but leave their calls apart.
    """
    pairs = [(a[i], b[j]) for i, j in sorted(places.items()) if 0 <= i < len(a)]
    left, right = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    if (left == NO_TIME).any() or (right == NO_TIME).any():
        return False
    away = np.abs(left - right - median(left - right))
    near, most = np.percentile(away, [50, 90])
    between = loose * float(np.median(np.diff(left)))
    return bool(
        near <= min(loose * END_SKEW_NS, _NEAR * between)
        and most <= min(loose * _FEW_APART * END_SKEW_NS, _NEARLY_ALL * between)
    )


_NEAR, _NEARLY_ALL, _FEW_APART = 0.05, 0.25, 4
"""Ends of one call, as shares of the time between calls: half of them, and nine in ten; those in end skews, too."""
