"""The tables: what a parser yields, and what the product publishes.

* `parsed`, `witness`: what parsers make and `tracekit.label` and `tracekit.analysis` read.
* `labelled`: a rank after labelling.
* `column`, `rank_tables`, `job_tables`, `verdict_tables`, `tables`: name, Arrow type, unit, meaning and formula of
  every published column. The Arrow schemas, `tracekit schema` and the `columns` table are all made from them.
"""

from __future__ import annotations

from tracekit.model.column import Column, Table
from tracekit.model.labelled import (
    NO_TIME,
    Activities,
    Call,
    ChunkSpan,
    Fired,
    HostTimes,
    Kind,
    Label,
    LabelledRank,
    Marker,
    PipelineSpans,
)
from tracekit.model.parsed import (
    CPU_DEVICE,
    UNIX_NS,
    CommArgs,
    CommRecords,
    DeviceAnnotations,
    DeviceClass,
    DeviceRows,
    HealthEntry,
    HostCat,
    HostRows,
    LinkConfidence,
    OpRows,
    ProcessGroup,
    RankTrace,
    TraceMeta,
    Track,
    on_unix_clock,
)
from tracekit.model.tables import SCHEMA_VERSION, TABLES, arrow_schema
from tracekit.model.witness import Witness, WitnessCall, WitnessGroup
from tracekit.model.witness_columns import CallColumns
from tracekit.model.witness_columns import columns as columns_of

__all__ = [
    "CPU_DEVICE",
    "NO_TIME",
    "SCHEMA_VERSION",
    "TABLES",
    "UNIX_NS",
    "Activities",
    "Call",
    "CallColumns",
    "ChunkSpan",
    "Column",
    "CommArgs",
    "CommRecords",
    "DeviceAnnotations",
    "DeviceClass",
    "DeviceRows",
    "Fired",
    "HealthEntry",
    "HostCat",
    "HostRows",
    "HostTimes",
    "Kind",
    "Label",
    "LabelledRank",
    "LinkConfidence",
    "Marker",
    "OpRows",
    "PipelineSpans",
    "ProcessGroup",
    "RankTrace",
    "Table",
    "TraceMeta",
    "Track",
    "Witness",
    "WitnessCall",
    "WitnessGroup",
    "arrow_schema",
    "columns_of",
    "on_unix_clock",
]
