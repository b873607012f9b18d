"""What another account of a call knows that the call itself does not: algorithm, time on the device, Python frame."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.model import Call, WitnessCall

_OF_TORCH = re.compile(r"(?:^|[/\\])torch[/\\]|^<")


class Enricher:
    """Fills calls from the calls of one source; equal stacks and equal sets of sources are one object each."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._frames: dict[int, tuple[tuple[str, ...], str | None]] = {}
        self._sources: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}

    def fill(self, call: Call, seen: WitnessCall) -> None:
        """Everything that is tied to this one call."""
        self.choice(call, seen.extra)
        if call.exec_ns is None and seen.dur_ns is not None:
            call.exec_ns = seen.dur_ns
            call.exec_busbw_gbps = positive(seen.extra.get("busbw_gbs"))
            self.told(call, "duration")
        if call.frame is None and (frame := self._frame(seen.frames)) is not None:
            call.frame = frame
            self.told(call, "frame")

    def choice(self, call: Call, extra: Mapping[str, Any]) -> None:
        """Algorithm, protocol and channels are one choice and come from one source; channels alone give way to it."""
        if call.algorithm is not None:
            return
        algorithm, protocol, channels = extra.get("algorithm"), extra.get("protocol"), extra.get("channels")
        number = channels if isinstance(channels, int) and 0 < channels < 1 << 31 else None
        if algorithm is None and (number is None or call.channels is not None):
            return
        call.channels = number
        if algorithm is not None:
            call.algorithm, call.protocol = str(algorithm), None if protocol is None else str(protocol)
        self.told(call, "algorithm")

    def told(self, call: Call, field: str) -> None:
        """Note that a field of a call comes from this source."""
        pairs = (*call.sources, (field, self.source))
        call.sources = self._sources.setdefault(pairs, pairs)

    def _frame(self, frames: tuple[str, ...]) -> str | None:
        if not frames:
            return None
        found = self._frames.get(id(frames))
        if found is None:
            frame = next((f for f in frames if not _OF_TORCH.search(f)), None)
            found = self._frames[id(frames)] = frames, frame  # the stack stays alive, so that its identity is its own
        return found[1]


def positive(value: object) -> float | None:
    """A bandwidth; 0 is what the Inspector writes where it has none."""
    return float(value) if isinstance(value, int | float) and 0 < value < 1e9 else None
