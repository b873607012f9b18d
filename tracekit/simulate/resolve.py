"""When the device work of all ranks runs: each as early as streams, results and other ranks allow. Integer ns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.simulate.device import GAP_NS, LAUNCH_LATENCY_NS
from tracekit.simulate.errors import Stuck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.simulate.device import Work


def resolve(programs: Sequence[Sequence[Work]]) -> None:
    """Give every work its start and end; `programs[i]` is what one rank issues, in that order.

    Communication starts when its own rank allows and ends when the last member of each of its meetings has started and
    the transfer is over. Raises Stuck where ranks wait for each other in a circle.
    """
    streams = [stream for program in programs for stream in _streams(program)]
    at = [0] * len(streams)
    runnable = list(range(len(streams)))
    waiting: dict[int, list[int]] = {}
    while runnable:
        i = runnable.pop()
        stream = streams[i]
        while at[i] < len(stream):
            work = stream[at[i]]
            blocked = next((d for d in work.deps if d.end < 0), None)
            if blocked is not None:
                waiting.setdefault(id(blocked), []).append(i)
                break
            at[i] += 1
            for done in _start(work):
                runnable += waiting.pop(id(done), ())
    if waiting:
        places = [next((w for w in p if w.start < 0), None) for p in programs]
        blocked_at = [w for w in places if w is not None]
        raise Stuck(f"{len(blocked_at)} ranks wait for each other, the first at {blocked_at[0].name!r} of step "
                    f"{blocked_at[0].step}")  # fmt: skip


def _streams(program: Sequence[Work]) -> list[list[Work]]:
    """What a rank issues to each stream: only there does one piece of work keep the next from its start."""
    out: dict[int, list[Work]] = {}
    for work in program:
        out.setdefault(work.stream, []).append(work)
    return [*out.values()]


def _start(work: Work) -> list[Work]:
    """Start a work; all whose end is known by that."""
    ready = max((d.end for d in work.deps), default=0)
    work.start = max(ready, work.launched + LAUNCH_LATENCY_NS) + GAP_NS
    if not work.meetings:
        work.end = work.start + work.ns
        return [work]
    for meeting in work.meetings:
        meeting.members.append(work)
    partners = {id(w): w for m in work.meetings for w in m.members}
    return [w for w in partners.values() if w.end < 0 and _finish(w)]


def _finish(work: Work) -> bool:
    """Set the end of communication if all members of its meetings have started."""
    end = 0
    for meeting in work.meetings:
        if len(meeting.members) < meeting.size:
            return False
        end = max(end, max(w.start for w in meeting.members) + meeting.ns)
    work.end = end + work.skew
    return True
