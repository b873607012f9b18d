"""One colour for each strategy, class of time and pipeline action, the same in every output.

Every colour stands out from a white and from a near-black ground (contrast of 3 or more, WCAG 1.4.11), and those of
the main strategies stay apart for readers who do not see red or green. Names are always written beside colours.
"""

from __future__ import annotations

LIGHT, DARK = "#ffffff", "#15181d"
"""The grounds that the colours are made for."""

STRATEGIES: dict[str, str] = {
    "tp": "#2f6fd6",
    "sp": "#3b93cf",
    "pp": "#b8432a",
    "dp": "#2a9d6f",
    "zero1": "#3f9a8f",
    "zero2": "#4b8f3a",
    "zero3": "#117a5b",
    "hsdp": "#6f9a1e",
    "cp": "#b05bb5",
    "ep": "#c08410",
    "etp": "#6a5acd",
    "eplb": "#94700f",
    "embedding": "#d9688f",
    "kv_transfer": "#a8694a",
    "housekeeping": "#7d8590",
    "unknown": "#8f7f6f",
}

COMPUTE = "#5d7186"
"""Compute, where it stands beside strategies."""

CLASSES: dict[str, str] = {
    "compute_only_ns": COMPUTE,
    "overlapped_ns": "#2a9d8f",
    "fused_ns": "#7a6fc0",
    "exposed_comm_ns": "#d1492e",
    "exposed_copy_ns": "#c08410",
    "idle_ns": "#8b929c",
}
"""Classes of time of the table `breakdown`."""

ACTIONS: dict[str, str] = {"F": "#2f6fd6", "B": "#2a9d6f", "I": "#3f9a8f", "W": "#94700f"}
"""What pipeline stages do: forward, backward, input and weight gradient."""

WAITING, TRANSFER, UNSPLIT, HIDDEN = "#d1492e", "#c08410", "#8f7f6f", "#2a9d8f"
"""Parts of communication time."""


def strategy(name: str) -> str:
    """Colour of a strategy; an undecided pair such as "zero1|zero2" has that of its first, a new name that of none."""
    return STRATEGIES.get(name.partition("|")[0], STRATEGIES["unknown"])
