"""Why a formula gives no number."""

from __future__ import annotations


class NoNumber(ValueError):
    """A number cannot be given; the message is the reason to publish beside the null."""


class MissingInput(NoNumber):
    """An input is not known. `names` are the missing ones, e.g. `model.hidden`."""

    def __init__(self, *names: str) -> None:
        self.names = names
        super().__init__("needs " + ", ".join(names))


class OutsideDomain(NoNumber):
    """The formula does not hold for these inputs; the message says which condition fails."""
