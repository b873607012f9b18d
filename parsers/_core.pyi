"""The compiled decode core; see `_core.c`."""

REVISION: int

class Scanner:
    def __new__(
        cls,
        classes: tuple[tuple[bytes, int, int], ...],
        prefixes: tuple[bytes, ...],
        keys: tuple[bytes, ...],
        longest: int,
        /,
    ) -> Scanner: ...
    def scan(self, data: bytes, text_times: bool, /) -> list[bytes] | None: ...
    def texts(self, which: int, first: int, /) -> list[bytes]: ...
