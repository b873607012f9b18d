"""Exposed, hidden, attributed and idle time of windows: one sweep gives every number."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracekit.analysis.intervals import share_evenly, time_by_state
from tracekit.model import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.model import Activities, Label

RowKey = tuple[str, str, str]
"""(strategy, purpose, phase); "" stands for none."""
UNKNOWN: RowKey = ("unknown", "", "")
COMPUTE, FUSED, COPY = 0, 1, 2
_FIRST_COMM = 3


class Exposed(Struct):
    """Times of one strategy, or of one (strategy, purpose, phase), in one window; ns."""

    total: int = 0
    hidden: int = 0
    exposed: int = 0
    alone: int = 0
    attributed: int = 0

    def add(self, other: Exposed) -> None:
        """Count the times of another, disjoint window as well."""
        self.total += other.total
        self.hidden += other.hidden
        self.exposed += other.exposed
        self.alone += other.alone
        self.attributed += other.attributed


class Account(Struct):
    """One window, every ns in one class; `rows` by (strategy, purpose, phase), `strategies` by strategy."""

    window: int = 0
    compute_only: int = 0
    overlapped: int = 0
    exposed_comm: int = 0
    fused: int = 0
    copy: int = 0
    idle: int = 0
    rows: dict[RowKey, Exposed] = field(default_factory=lambda: defaultdict(Exposed))
    strategies: dict[str, Exposed] = field(default_factory=lambda: defaultdict(Exposed))

    def add(self, other: Account) -> None:
        """Count the time of another, disjoint window as well."""
        for name in ("window", "compute_only", "overlapped", "exposed_comm", "fused", "copy", "idle"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for key, row in other.rows.items():
            self.rows[key].add(row)
        for strategy, row in other.strategies.items():
            self.strategies[strategy].add(row)

    @property
    def busy(self) -> int:
        """Time with anything on the device."""
        return self.window - self.idle


def row_key(label: Label) -> RowKey:
    """Where the time of a call with this label is booked."""
    return (label.strategy, label.purpose or "", label.phase or "")


def account(
    acts: Activities, rows: NDArray[np.intp], key_of_call: list[RowKey], edges: NDArray[np.int64]
) -> list[Account]:
    """Account the activities `rows` in the windows [edges[i], edges[i+1]).

    Order of classes for an instant: compute and comm → overlapped; compute; comm → exposed; fused; copy
    or set; idle. Attribution: an exposed instant is divided equally among the strategies active in it,
    then within a strategy among its rows; whole ns, remainders to the first names in order.
    """
    ts, end = acts.ts[rows], acts.ts[rows] + acts.dur[rows]
    kind = acts.kind[rows]
    keys, parts = _comm_parts(acts, rows, kind, key_of_call)
    others = (kind == Kind.COMPUTE, kind == Kind.FUSED, (kind == Kind.COPY) | (kind == Kind.SET))
    sets = [(ts[m], end[m]) for m in (*map(np.flatnonzero, others), *parts)]
    states = time_by_state(sets, edges)
    accounts = [Account(int(b - a)) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    for window, state, ns in zip(states.window.tolist(), states.state.tolist(), states.ns.tolist(), strict=True):
        members = states.members[state]
        _book(accounts[window], ns, set(members), [keys[m - _FIRST_COMM] for m in members if m >= _FIRST_COMM])
    return accounts


def _comm_parts(
    acts: Activities, rows: NDArray[np.intp], kind: NDArray[np.int8], key_of_call: list[RowKey]
) -> tuple[list[RowKey], list[NDArray[np.intp]]]:
    """Distinct keys in order, and the positions in `rows` of the communication of each."""
    comm = np.flatnonzero(kind == Kind.COMM)
    call = acts.call[rows[comm]]
    present = np.unique(call)
    key_of = [key_of_call[c] if c >= 0 else UNKNOWN for c in present.tolist()]
    keys = sorted(set(key_of))
    number = {k: i for i, k in enumerate(keys)}
    code = np.array([number[k] for k in key_of], np.int64)[np.searchsorted(present, call)]
    order = np.argsort(code, kind="stable")
    cuts = np.searchsorted(code[order], np.arange(1, len(keys)))
    return keys, np.split(comm[order], cuts) if keys else []


def _book(a: Account, ns: int, members: set[int], active: list[RowKey]) -> None:
    compute = COMPUTE in members
    if compute and active:
        a.overlapped += ns
    elif compute:
        a.compute_only += ns
    elif active:
        a.exposed_comm += ns
    elif FUSED in members:
        a.fused += ns
    elif COPY in members:
        a.copy += ns
    else:
        a.idle += ns
    if not active:
        return
    strategies = sorted({k[0] for k in active})
    shares = [0] * len(strategies) if compute else share_evenly(ns, len(strategies))
    for strategy, share in zip(strategies, shares, strict=True):
        own = sorted(k for k in active if k[0] == strategy)
        _add(a.strategies[strategy], ns, compute, alone=len(strategies) == 1, share=share)
        for key, part in zip(own, share_evenly(share, len(own)), strict=True):
            _add(a.rows[key], ns, compute, alone=len(active) == 1, share=part)


def _add(e: Exposed, ns: int, compute: bool, *, alone: bool, share: int) -> None:
    e.total += ns
    e.attributed += share
    if compute:
        e.hidden += ns
    else:
        e.exposed += ns
        e.alone += ns if alone else 0
