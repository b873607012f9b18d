"""What a slice of a communication call says: its title and its arguments, as JSON text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.timeline import NO_CALL, integers, texts
from tracekit.model import NO_TIME
from tracekit.output.chrome import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_TEXTS = ("op", "strategy", "purpose", "phase", "group_name", "group_desc", "scope", "tier", "rule", "verdict", "match",
          "wait_reason", "kernel")  # fmt: skip
_NUMBERS = ("group_size", "payload_bytes", "wait_ns", "transfer_ns", "expected_ns", "match_id", "step", "src_rank",
            "dst_rank", "coalesced_into")  # fmt: skip
_RATES = ("confidence", "algbw_gbps", "busbw_gbps")
_SAID = ("strategy", "purpose", "phase", "group_name", "group_desc", "scope", "tier", "rule", "verdict", "match",
         "wait_reason", "kernel")  # fmt: skip
_COUNTED = ("group_size", "payload_bytes", "wait_ns", "transfer_ns", "expected_ns", "match_id", "step", "src_rank",
            "dst_rank")  # fmt: skip


class CallTexts:
    """Columns of one recording's `collectives`, looked up by the number of a call (`id` = row)."""

    def __init__(self, collectives: pa.Table) -> None:
        self._text = {n: texts(collectives, n) for n in _TEXTS}
        self.number: dict[str, NDArray[np.int64]] = {n: integers(collectives, n) for n in _NUMBERS}
        self._rate = {n: collectives.column(n).to_pylist() for n in _RATES if n in collectives.column_names}
        self._json: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.number["step"])

    def _lookup(self, name: str, call: NDArray[np.int64], missing: int) -> NDArray[np.int64]:
        values = np.append(self.number[name], NO_TIME)
        found = values[np.where(call == NO_CALL, -1, call)]
        return np.where(found == NO_TIME, missing, found)

    def step_of(self, call: NDArray[np.int64]) -> NDArray[np.int64]:
        """Step of each call; -1 where it has none."""
        return self._lookup("step", call, -1)

    def wait_of(self, call: NDArray[np.int64]) -> NDArray[np.int64]:
        """`wait_ns` of each call; `NO_TIME` where it is null."""
        return self._lookup("wait_ns", call, NO_TIME)

    def strategies(self, call: NDArray[np.int64]) -> list[str]:
        """Strategy of each call; `unknown` where there is no call."""
        known = self._text["strategy"]
        return ["unknown" if c == NO_CALL else known[c] or "unknown" for c in call.tolist()]

    def _quoted(self, text: str) -> str:
        if text not in self._json:
            self._json[text] = quoted(text)
        return self._json[text]

    def title(self, call: int) -> str:
        """`all_reduce · grad_reduce (backward)`, as JSON."""
        op, purpose, phase = (self._text[n][call] for n in ("op", "purpose", "phase"))
        text = f"{op}" + (f" · {purpose}" if purpose else "") + (f" ({phase})" if phase else "")
        return self._quoted(text)

    def waiting_titles(self, call: NDArray[np.int64]) -> list[str]:
        """What is waited in."""
        ops, known = self._text["op"], self._text["strategy"]
        return [self._quoted(f"waits in {known[c]} {ops[c]}" if c != NO_CALL else "waits") for c in call.tolist()]

    def args(self, call: int, exposed_ns: int | None) -> str:
        """Everything that is known of the call, as one JSON object."""
        parts = [] if exposed_ns is None else [f'"exposed_ns": {exposed_ns}']
        if call == NO_CALL:
            return "{" + ", ".join([*parts, '"strategy": "unknown"']) + "}"
        parts.append(f'"call_id": {call}')
        for name in _SAID:
            text: Any = self._text[name][call]
            if text is not None:
                parts.append(f'"{name}": {self._quoted(text)}')
        for name in _COUNTED:
            value = int(self.number[name][call])
            if value != NO_TIME:
                parts.append(f'"{name}": {value}')
        for name, values in self._rate.items():
            if values[call] is not None:
                parts.append(f'"{name}": {values[call]:.6g}')
        return "{" + ", ".join(parts) + "}"
