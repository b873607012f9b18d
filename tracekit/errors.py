"""Every error tracekit raises on purpose.

    TracekitError                exit 1   the analysis itself failed
    ├── UsageError               exit 2   arguments, options or rule files that make no sense
    ├── UnusableInput            exit 3   nothing usable in the input
    │   ├── ForeignFormat        exit 3   a format that is recognised, but not read
    │   ├── BrokenInput          exit 3   damaged beyond salvage, or damaged at all under --strict
    │   └── LimitExceeded        exit 3   a safety limit (size, nesting, ratio) was hit
    ├── RuleError                exit 2   a mistake in a rule file
    └── GateCrossed              exit 4   a condition of --gate does not hold

The message of each names the file, the place in it, what was expected and what to do.
"""

from __future__ import annotations


class TracekitError(Exception):
    """Base of all deliberate failures; `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(TracekitError):
    """The request makes no sense: an option, a pattern or a mapping is wrong."""

    exit_code = 2


class RuleError(UsageError):
    """A rule file has a mistake; the message gives file, rule and field."""


class UnusableInput(TracekitError):
    """Nothing in the input can be analysed."""

    exit_code = 3


class ForeignFormat(UnusableInput):
    """The file is recognised as a format that tracekit does not read."""


class BrokenInput(UnusableInput):
    """The file is damaged: beyond salvage, or at all when strict reading was asked for."""


class LimitExceeded(UnusableInput):
    """Reading on would break a safety limit."""


class GateCrossed(TracekitError):
    """A condition that the user set does not hold; the results are there all the same."""

    exit_code = 4
