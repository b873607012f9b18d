"""Checks of arguments that every formula shares."""

from __future__ import annotations

from math import isfinite

from tracekit.theory.errors import OutsideDomain


def positive(**values: float) -> None:
    """Each value is finite and above zero; OutsideDomain names the one that is not."""
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise OutsideDomain(f"{name} must be above zero, not {value}")


def not_negative(**values: float) -> None:
    """Each value is finite and zero or more; OutsideDomain names the one that is not."""
    for name, value in values.items():
        if not (isfinite(value) and value >= 0):
            raise OutsideDomain(f"{name} must not be negative, and is {value}")


def divides(part: int, whole: int, what: str) -> int:
    """whole / part, exactly; OutsideDomain otherwise. `what` reads like "layers by pipeline stages"."""
    positive(divisor=part)
    if whole % part:
        raise OutsideDomain(f"{what}: {whole} is no multiple of {part}")
    return whole // part


def share(numerator: int, denominator: int, of: int) -> int:
    """of · numerator / denominator in whole bytes, rounded up; exact for any size."""
    return -(-of * numerator // denominator)
