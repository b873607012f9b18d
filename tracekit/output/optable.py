"""Operation table of a job as Parquet, in the layout that StragglerAnalysis (and tracekit) reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.model import OpRows


def write_op_table(ops: OpRows, path: Path) -> Path:
    """Write operations to `path`: times in seconds (float64, exact to the ns below 100 days), -1 for unknown numbers.

    Starts count from their step's first start. Raises TracekitError when the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tracekit.analysis.tables import encoded, from_numpy

    steps, at = np.unique(ops.step, return_inverse=True)
    first = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(first, at, ops.start)
    integers: dict[str, NDArray[Any]] = {
        "dp_rank": ops.dp_rank, "stage": ops.stage, "rank": ops.rank, "step": ops.step, "seq_id": ops.seq,
        "mc": ops.chunk, "mb_id": ops.micro_batch, "gmc": ops.global_chunk,
    }  # fmt: skip
    seconds = {"start_ts": ops.start - first[at], "duration": ops.dur}
    columns = {n: from_numpy(v, pa.int64() if n == "step" else pa.int32()) for n, v in integers.items()}
    columns |= {name: from_numpy(v / 1e9, pa.float64()) for name, v in seconds.items()}
    columns["optype"] = encoded(ops.op, ops.ops)
    order = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
    try:
        pq.write_table(pa.table({name: columns[name] for name in order}), path, compression="zstd")
    except OSError as e:
        raise TracekitError(f"{path}: cannot be written ({e.strerror or e}); check space and permissions") from e
    return path
