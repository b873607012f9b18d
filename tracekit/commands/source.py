"""What a command is given: traces to analyse, or a dataset that an analysis left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.api import Result
    from tracekit.commands.progress import Progress


def result_of(
    paths: tuple[str, ...], progress: Progress, *, detail: bool, title: str = "ranks read", **how: Any
) -> Result:
    """The result of traces (analysed now) or of one dataset (read). how: options of `tracekit.open`.

    UsageError when a dataset is given together with anything else, or with options that only reading traces knows.
    """
    from tracekit.api import analyze, open, read
    from tracekit.output.dataset import is_dataset

    found = [p for p in paths if is_dataset(p)]
    if not found:
        return analyze(open(paths, **how), detail=detail, progress=progress.step(title))
    if len(paths) > 1:
        raise UsageError(f"{found[0]}: a dataset is a whole run; give it alone")
    given = [name for name, value in how.items() if value not in (None, (), False) and name != "workers"]
    if given:
        names = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{found[0]}: is a dataset; {names} can change only what is read from traces")
    return read(paths[0])
