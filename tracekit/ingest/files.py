"""What each file of a run was taken for, and what became of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tracekit.ingest.identity import compress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.ingest.discover import Found
    from tracekit.ingest.identity import Part
    from tracekit.ingest.worker import Failure, PartResult

Row = dict[str, Any]
ANALYSED, LEFT_OUT, JOINED, NOT_JOINED = "analysed", "left out", "joined", "not joined"
TABLE, UNUSABLE, PASSED_OVER = "operation table", "could not be used", "passed over"


def file_rows(
    found: Found, results: Sequence[tuple[PartResult, Part]], failures: Iterable[Failure], dumps: Iterable[str]
) -> list[Row]:
    """Rows of the table `files`, in order of path. dumps: paths that the post-mortem of a hang read."""
    ranks: dict[str, set[int]] = defaultdict(set)
    use: dict[str, str] = {}
    for result, part in results:
        path = result.meta.path
        use[path] = ANALYSED if part.used or use.get(path) == ANALYSED else LEFT_OUT
        if part.used and part.rank is not None:
            ranks[path].add(part.rank)
    for result, part in results:
        for path, _ in result.joined if part.used else ():
            use.setdefault(path, JOINED)
            if part.rank is not None:
                ranks[path].add(part.rank)
    for path in dumps:
        use.setdefault(path, "post-mortem only")
    use |= dict.fromkeys((f.path for f in failures), UNUSABLE)
    use |= dict.fromkeys(map(str, found.op_tables), TABLE)
    rows = []
    for file, what in sorted(found.formats.items()):
        name = str(file)
        rows.append(
            {
                "path": name, "format": what.name, "title": what.title,
                "use": use.get(name, NOT_JOINED if what.witness else PASSED_OVER),
                "ranks": compress(sorted(ranks[name])) or None,
                "reason": what.advice if name not in use and not what.witness else None,
            }
        )  # fmt: skip
    return rows
