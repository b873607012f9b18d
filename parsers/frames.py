"""Python frames (`python_function` rows): which of the hundreds of thousands are kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tracekit.parsers.repeats import Repeats

if TYPE_CHECKING:
    import re

    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]
    Mask = NDArray[np.bool_]

CATEGORY = "python_function"
_MAX_KNOWN = 1 << 18
_SCANNER = json.JSONDecoder(strict=True)


class Frames:
    """Rows whose name contains a match of `pattern` (`re.search`) are kept; of `names`, only the names (`noted`)."""

    def __init__(self, pattern: re.Pattern[str] | None, names: re.Pattern[str] | None = None) -> None:
        self.pattern, self.names = pattern, names
        self.noted: set[str] = set()
        self._names: dict[Any, bool] = {}
        self._lines = Repeats(self._of_line)

    def wanted(self, name: Any) -> bool:
        """Is a frame of this name kept?"""
        found = self._names.get(name)
        if found is None:
            if len(self._names) >= _MAX_KNOWN:
                self._names.clear()
            text = str(name)
            found = self._names[name] = self.pattern is not None and self.pattern.search(text) is not None
            if not found and self.names is not None and self.names.search(text) is not None:
                self.noted.add(text)
        return found

    def select(self, data: bytes, begin: Rows, end: Rows) -> Mask:
        """Rows to decode, of rows whose name starts at `begin` (behind its quote) on a line that ends at `end`.

        A name that cannot be told from its line alone is among them. `end` as `Repeats.codes` needs it.
        """
        keep: Mask = self._lines.codes(data, begin, end) != 0
        return keep

    def _of_line(self, line: bytes) -> int:
        try:
            text = '"' + line.decode()
            name, stop = _SCANNER.raw_decode(text)
        except ValueError:
            return 1
        return int(text[stop : stop + 1] != "," or self.wanted(name))
