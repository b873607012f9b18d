"""PyTorch flight recorder dumps → `Witness`: pickle or JSON, every version from torch 2.2 on.

What a dump knows: the calls still in the ring buffer in order of issue, their sizes, groups, Python frames, and how far
each was seen to have come; per group the last sequence numbers. What it does not know: how long anything took, unless
timing was switched on. Times of start and completion are those at which the watchdog looked.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec

from tracekit.errors import BrokenInput, LimitExceeded
from tracekit.model import HealthEntry, TraceMeta, Witness, WitnessCall, WitnessGroup
from tracekit.parsers.safe_pickle import load_plain
from tracekit.parsers.source import whole

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "flight-recorder"
MAX_BYTES = 256 << 20
MAX_FRAMES = 256
MAX_RANKS = 1 << 20
MAX_SEATS = 1 << 24
MAX_ENTRIES = 200_000
MAX_TENSORS = 4_096
MAX_DIMENSIONS = 64
_PAIR = re.compile(r"\b(?:send|recv)\s+(\d{1,7})\s*(?:->|<-)\s*(\d{1,7})\s*$")
_STATES = frozenset({"scheduled", "started", "completed"})
_FIX = "dump again, or leave the file out"

Raw = dict[str, Any]
Stacks = dict[tuple[tuple[Any, ...], ...], tuple[str, ...]]


def parse(path: Path, *, strict: bool = False) -> list[Witness]:
    """Read one dump: one process. strict: refuse entries that cannot be used instead of counting them.

    Raises BrokenInput for damage or a pickle that holds more than plain data, LimitExceeded.
    """
    data, source = whole(path, MAX_BYTES, "a flight recorder dump holds a few MB", _FIX)
    root = load_plain(data, path) if data[:1] == b"\x80" else _json(data, path)
    raw, entries = _entries(root, path)
    version = _text(raw.get("version"))
    out = Witness(
        TraceMeta(
            str(path), file_bytes=source.file_bytes, json_bytes=len(data), compression=source.compression,
            nccl_version=_text(raw.get("comm_lib_version")) or _text(raw.get("nccl_version")) or None,
            era=f"flight recorder {version or 'of torch 2.2'}",
        ),
        SOURCE,
        version=version,
    )  # fmt: skip
    good = [e for e in entries if isinstance(e, dict) and isinstance(e.get("profiling_name"), str)]
    if odd := len(entries) - len(good):
        if strict:
            raise BrokenInput(f"{path}: {odd} of {len(entries)} entries have no profiling_name; {_FIX}")
        out.health.append(HealthEntry("flight recorder entries that hold no call", odd, "lost"))
    told = _told(raw)
    good.sort(key=_order)
    stacks: Stacks = {}
    out.calls = [_call(e, told, stacks) for e in good]
    out.groups = _groups(raw, told, good, out)
    if out.calls and out.calls[0].record is not None:
        out.lost = out.calls[0].record
    _place(out)
    return [out]


def _json(data: bytes, path: Path) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise BrokenInput(f"{path}: the dump is not whole JSON ({str(e)[:160]}); {_FIX}") from e


def _entries(root: Any, path: Path) -> tuple[Raw, list[Any]]:
    """(the dump without its entries, the entries); torch 2.2 wrote nothing but the list."""
    if isinstance(root, list):
        return {}, _few(root, path)
    if isinstance(root, dict) and (root.keys() & {"entries", "pg_config", "pg_status", "version"}):
        entries = root.get("entries", [])  # left out when there are none
        if isinstance(entries, list):
            return {k: v for k, v in root.items() if isinstance(k, str) and k != "entries"}, _few(entries, path)
    raise BrokenInput(f"{path}: expected entries, pg_config or pg_status of a flight recorder; {_FIX}")


def _few(entries: list[Any], path: Path) -> list[Any]:
    """A small file can hold one entry any number of times."""
    if len(entries) > MAX_ENTRIES:
        raise LimitExceeded(f"{path}: more than {MAX_ENTRIES:,} entries; the buffer of a recorder holds a few thousand")
    return entries


def _plain(value: Any) -> str:
    """Text of a text or a number; that of a container might have no end."""
    return str(value) if isinstance(value, str | int | None) else ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> int | None:
    """An int, also spelled as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        return int(value)
    return None


def _time(value: Any) -> int | None:
    """A time in ns; the JSON form writes 0 for none."""
    found = _number(value)
    return found if found else None


def _order(entry: Raw) -> int:
    """Order of issue: the buffer is a ring, so the list may begin anywhere."""
    record = _number(entry.get("record_id"))
    return record if record is not None else _number(entry.get("time_created_ns")) or 0


def _told(raw: Raw) -> dict[str, Raw]:
    """pg_config by group; before 2.4 by number, as its entries are."""
    config = raw.get("pg_config")
    return {_plain(k): v for k, v in config.items() if isinstance(v, dict)} if isinstance(config, dict) else {}


def _group_of(entry: Raw, told: dict[str, Raw]) -> tuple[str, str | None, str | None]:
    """(key, name, description) of an entry's group: its name, else its number in this process."""
    pair = entry.get("process_group")
    number = _number(entry.get("pg_id"))
    if isinstance(pair, list | tuple) and len(pair) == 2 and _text(pair[0]):
        return str(pair[0]), str(pair[0]), _text(pair[1])
    if pair is None and (one := told.get(str(number))) is not None:
        name = _text(one.get("name")) or str(number)
        return name, name, _text(one.get("desc"))
    return f"#{number}", None, _text(pair[1]) if isinstance(pair, list | tuple) and len(pair) == 2 else None


def _call(entry: Raw, told: dict[str, Raw], stacks: Stacks) -> WitnessCall:
    name = str(entry["profiling_name"])
    p2p = _PAIR.search(name)
    is_p2p = bool(entry.get("is_p2p", p2p is not None))
    created = _number(entry.get("time_created_ns"))
    if created is None and (micro := _number(entry.get("time_created_us"))) is not None:
        created = micro * 1000
    length = entry.get("duration_ms")
    seq = _number(entry.get("collective_seq_id"))
    state = entry.get("state")
    return WitnessCall(
        op_raw=name,
        group=_group_of(entry, told)[0],
        seq=_number(entry.get("seq_id")) if seq is None else seq,
        p2p_seq=_number(entry.get("p2p_seq_id")) if is_p2p else None,
        op_id=_number(entry.get("op_id")),
        record=_number(entry.get("record_id")),
        is_p2p=is_p2p,
        in_sizes=_sizes(entry.get("input_sizes")),
        out_sizes=_sizes(entry.get("output_sizes")),
        dtype=_dtype(entry.get("input_dtypes")),
        out_dtype=_dtype(entry.get("output_dtypes")),
        state=state if isinstance(state, str) and state in _STATES else None,
        retired=entry["retired"] if isinstance(entry.get("retired"), bool) else None,
        created_ns=created or None,
        started_ns=_time(entry.get("time_discovered_started_ns")),
        completed_ns=_time(entry.get("time_discovered_completed_ns")),
        noticed=True,
        dur_ns=round(length * 1e6) if isinstance(length, int | float) and 0 < length < 1e9 else None,
        peer=int(p2p[2]) if p2p else None,
        thread=_text(entry.get("thread_id")),
        thread_name=_text(entry.get("thread_name")),
        frames=_frames(entry.get("frames"), stacks),
        extra={"own": int(p2p[1])} if p2p else {},
    )


def _sizes(value: Any) -> list[list[int]] | None:
    if not isinstance(value, list | tuple):
        return None
    if len(value) > MAX_TENSORS or any(isinstance(s, list | tuple) and len(s) > MAX_DIMENSIONS for s in value):
        return None
    shapes = [list(s) for s in value if isinstance(s, list | tuple) and all(type(n) is int for n in s)]
    return shapes if len(shapes) == len(value) else None


def _dtype(value: Any) -> str | None:
    """The element type of all tensors, None when they differ."""
    kinds = (
        {v for v in value if isinstance(v, str)}
        if isinstance(value, list | tuple) and len(value) <= MAX_TENSORS
        else set()
    )
    return kinds.pop() if len(kinds) == 1 else None


def _frames(value: Any, stacks: Stacks) -> tuple[str, ...]:
    """Frames as text; equal stacks are one object."""
    if not isinstance(value, list | tuple):
        return ()
    key = tuple(
        (_plain(f.get("filename")), _plain(f.get("line")), _plain(f.get("name")))
        for f in value[:MAX_FRAMES]
        if isinstance(f, dict)
    )
    found = stacks.get(key)
    if found is None:
        found = stacks[key] = tuple(f"{file}({line}): {name}" for file, line, name in key)
    return found


def _groups(raw: Raw, told: dict[str, Raw], entries: list[Raw], witness: Witness) -> list[WitnessGroup]:
    """Groups of the configuration, then those that only calls name; the state of each where it is known."""
    out: dict[str, WitnessGroup] = {}
    seated = 0
    for key, one in told.items():
        name = _text(one.get("name")) or _text(key)
        if name is None:
            continue  # gloo writes all its groups over one entry without a name: it says nothing
        ranks = _ranks(one.get("ranks"))
        seated += len(ranks or ())
        if seated > MAX_SEATS:
            raise LimitExceeded(f"{witness.meta.path}: more than {MAX_SEATS:,} members of groups; no job is that large")
        out[name] = WitnessGroup(name, name, _text(one.get("desc")), len(ranks) if ranks else None, ranks)
    numbers: dict[str, str] = {}
    for entry in entries:
        key, group_name, desc = _group_of(entry, told)
        out.setdefault(key, WitnessGroup(key, group_name, desc))
        numbers[_plain(entry.get("pg_id"))] = key
    status = raw.get("pg_status")
    if isinstance(status, dict):
        _status({_plain(k): v for k, v in status.items() if isinstance(v, dict)}, out, numbers, witness.health)
    return list(out.values())


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Global ranks of "[0, 1]" (or a list); None when empty or anything else."""
    if isinstance(value, str):
        if len(value) > 12 * MAX_RANKS or not re.fullmatch(r"\[[\d\s,]*\]", value):
            return None
        value = [int(n) for n in re.findall(r"\d{1,9}", value)]
    if not isinstance(value, list | tuple) or not all(type(n) is int and 0 <= n < MAX_RANKS for n in value):
        return None
    return tuple(value) if value and len(set(value)) == len(value) else None


def _status(
    status: dict[str, Raw], groups: dict[str, WitnessGroup], numbers: dict[str, str], health: list[HealthEntry]
) -> None:
    """pg_status goes by a number that counts this process' groups in order; the entries tell which name has which
    number, and the others follow in order where that agrees with all that is told.
    """
    known = dict(numbers)
    by_number = sorted((k for k in status if k.isdecimal()), key=int)
    by_name = sorted((k for k in groups if k.isdecimal()), key=int)
    if len(by_number) == len(by_name) == len(groups):
        in_order = dict(zip(by_number, by_name, strict=True))
        if all(in_order.get(n, k) == k for n, k in numbers.items()):
            known = in_order | numbers
    untold = 0
    for number, one in status.items():
        group = groups.get(known.get(number, ""))
        if group is None:
            untold += 1
            continue
        for field in ("enqueued", "started", "completed"):
            value = _number(one.get(f"last_{field}_collective"))
            setattr(group, f"last_{field}", value if value is not None and value >= 0 else None)
    if untold:
        health.append(HealthEntry("group states (pg_status) of groups without a name", untold))


def _place(out: Witness) -> None:
    """Rank and world from the content: a process lists only groups of its own, and p2p calls tell its place in them."""
    ranks = [set(g.ranks) for g in out.groups if g.ranks]
    common = reduce(set.intersection, ranks) if ranks else set()
    by_key = {g.key: g for g in out.groups}
    for call in out.calls:
        group = by_key[call.group or ""]
        own = call.extra.pop("own", None)
        if own is None:
            continue
        group.own = own
        if group.ranks and own < len(group.ranks):
            common &= {group.ranks[own]}
    if len(common) == 1:
        out.meta.rank = common.pop()
    elif ranks and not common:
        out.health.append(HealthEntry("groups that no single rank can be in: the dump does not tell its rank", 1))
    whole = next((g for g in out.groups if g.desc == "default_pg" or g.name == "0"), None)
    if whole is not None and whole.ranks:
        out.meta.world_size = len(whole.ranks)
    for group in out.groups:
        if group.own is None and group.ranks and out.meta.rank in group.ranks:
            group.own = group.ranks.index(out.meta.rank)
