"""The vocabulary of published tables: a column, a table, and the columns many tables share."""

from __future__ import annotations

from msgspec import Struct

I64 = "int64"


class Column(Struct, frozen=True):
    """One published column; `type` is an Arrow alias or `dict` (dictionary-encoded string)."""

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False
    formula: str = ""


class Table(Struct, frozen=True):
    """One published table: its columns, and whether it is written one folder a rank."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    per_rank: bool = False


def column(name: str, type_: str, unit: str, meaning: str, *, null: bool = False, formula: str = "") -> Column:
    """One column; `null` says that it may be null."""
    return Column(name, type_, unit, meaning, null, formula)


RANK = column("rank", "int32", "", "global rank; null when no source names it", null=True)
DEVICE = column("device", "int32", "", "device ordinal; -1 = the host of a trace without device work")
STEP = column("step", "int32", "", "step number (see `steps`); null outside every step", null=True)

SPLIT = (
    column("window_ns", I64, "ns", "length of the window", formula="last end - first start"),
    column("compute_only_ns", I64, "ns", "compute alone", formula="|K \\ C|"),
    column("overlapped_ns", I64, "ns", "compute and communication at once", formula="|C ∩ K|"),
    column("fused_ns", I64, "ns", "only fused kernels (communication and compute in one kernel)"),
    column("exposed_comm_ns", I64, "ns", "communication that no compute hides", formula="|C \\ K|"),
    column("exposed_copy_ns", I64, "ns", "only copies or sets"),
    column("idle_ns", I64, "ns", "nothing on the device"),
)

EXPOSED = (
    column("count", I64, "calls", "collective calls (by membership)"),
    column("total_ns", I64, "ns", "time with this communication active; null when no call was timed",
       null=True, formula="|C_s|"),
    column("hidden_ns", I64, "ns", "of it under compute", null=True, formula="|C_s ∩ K|"),
    column("exposed_ns", I64, "ns", "of it not under compute", null=True, formula="|C_s \\ K|"),
    column("exposed_alone_ns", I64, "ns", "of it with no other communication", null=True,
       formula="|C_s \\ (K ∪ C_other)|"),
    column(
        "attributed_ns", I64, "ns", "share of exposed time; sums exactly to the exposed total", null=True,
        formula="each exposed instant divided equally among the strategies active in it",
    ),
    column("wait_ns", I64, "ns", "of total_ns, waiting for other ranks; null where nothing could be split", null=True),
    column("transfer_ns", I64, "ns", "of total_ns, moving data; total - wait - transfer could not be split", null=True),
    column("attributed_wait_ns", I64, "ns", "of attributed_ns, waiting; the three parts add up to it", null=True),
    column("attributed_transfer_ns", I64, "ns", "of attributed_ns, moving data", null=True),
    column("attributed_unsplit_ns", I64, "ns", "of attributed_ns, what could not be split", null=True),
)  # fmt: skip
