"""What a node's clock shows: all that was recorded on its ranks, moved by an offset and a drift."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.simulate.device import Gpu, HostRow, RuntimeRow, Work
    from tracekit.simulate.options import Options


@dataclass(frozen=True, slots=True)
class Clock:
    """Shows `t + offset_ns + (t - start_ns) · drift_ppm · 1e-6` at the true time t, ns."""

    start_ns: int
    offset_ns: int = 0
    drift_ppm: float = 0.0

    def at(self, t: int) -> int:
        """What the clock shows, ns."""
        return t + self.offset_ns + round((t - self.start_ns) * (self.drift_ppm * 1e-6))


def clock_of(options: Options, node: int, start_ns: int) -> Clock:
    """The clock of a node."""
    return Clock(start_ns, round(options.clock_us.get(node, 0.0) * 1000), options.drift_ppm.get(node, 0.0))


@dataclass(frozen=True, slots=True)
class Recorded:
    """One rank's rows as its clock shows them; `cpu`: end of the host's work."""

    rank: int
    host: Sequence[HostRow]
    runtime: Sequence[RuntimeRow]
    device: Sequence[Work]
    cpu: int


def recorded(gpu: Gpu, clock: Clock) -> Recorded:
    """The rows of a rank on a clock."""
    if not clock.offset_ns and not clock.drift_ppm:
        return Recorded(gpu.rank, gpu.host, gpu.runtime, gpu.device, gpu.cpu)
    at = clock.at
    host = [replace(r, ts=at(r.ts), dur=at(r.ts + r.dur) - at(r.ts)) for r in gpu.host]
    runtime = [replace(r, ts=at(r.ts), dur=at(r.ts + r.dur) - at(r.ts)) for r in gpu.runtime]
    device = [replace(w, start=at(w.start), end=at(w.end)) for w in gpu.device]
    return Recorded(gpu.rank, host, runtime, device, at(gpu.cpu))
