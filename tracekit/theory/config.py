"""Tables of sizes (run.toml, command options) → typed inputs, with errors that name the field."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

from tracekit.errors import UsageError
from tracekit.theory import catalogue
from tracekit.theory.errors import NoNumber
from tracekit.theory.machine import Hardware
from tracekit.theory.planning.rows import Job
from tracekit.theory.specs import LayoutSpec, TrainingSpec
from tracekit.theory.transformer import Experts, LatentAttention, ModelSpec

DEFAULTS: dict[str, Any] = {
    "dtype": "bf16", "grad_dtype": "bf16", "recompute": "none", "sequence_parallel": False, "data_parallel": "ddp",
    "schedule": "1F1B",
}  # fmt: skip
"""What the command assumes of [training] where nothing is said; it prints them as defaults."""
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "str": (str,), "float": (int, float)}


@dataclass(frozen=True, slots=True)
class Input:
    """One input as printed: field, value, and where it comes from (given | catalogue | default)."""

    field: str
    value: Any
    source: str


def _table(cls: type, values: dict[str, Any], where: str, nested: tuple[str, ...] = ()) -> dict[str, Any]:
    """Checked keyword arguments of a dataclass; UsageError names the unknown or ill-typed field."""
    known = {f.name: str(f.type) for f in fields(cls)}
    for key, value in values.items():
        if key not in known:
            raise UsageError(f"[{where}] has no field {key!r}; it knows {', '.join(known)}")
        if key in nested:
            continue
        kind = next((t for name, t in _TYPES.items() if known[key].startswith(name)), None)
        wrong = kind is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind != (bool,)))
        if wrong:
            raise UsageError(f"[{where}] {key} = {value!r}: expected {known[key].split(' |')[0]}")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < inf:
            raise UsageError(f"[{where}] {key} = {value!r}: expected a finite number, not negative")
    return values


def model_of(table: dict[str, Any]) -> ModelSpec:
    """[model]: `name` of the catalogue and sizes that override it, or sizes alone. Zero sizes are refused."""
    given = dict(table)
    name = given.pop("name", None)
    _table(ModelSpec, given, "model", ("experts", "mla"))
    for key in ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab"):
        if given.get(key) == 0:
            raise UsageError(f"[model] {key} = 0: expected a size")
    for key, cls in (("experts", Experts), ("mla", LatentAttention)):
        if key in given:
            given[key] = _nested(cls, given[key], f"model.{key}")
    known = name is not None and str(name).lower().replace("_", "-") in catalogue.model_names()
    if name is not None and not known and not given:
        catalogue.model(str(name))  # raises, and lists the names
    base = catalogue.model(str(name)) if known else ModelSpec(name=name)
    return replace(base, **given)


def _nested(cls: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise UsageError(f"[{where}] must be a table")
    try:
        return cls(**_table(cls, value, where))
    except TypeError as e:
        raise UsageError(f"[{where}] lacks a field: {e}") from None


def training_of(table: dict[str, Any], *, defaults: bool = False) -> TrainingSpec:
    """[training]; with `defaults` what is not said is as in DEFAULTS."""
    merged = {**DEFAULTS, **table} if defaults else dict(table)
    return TrainingSpec(**_table(TrainingSpec, merged, "training"))


def layout_of(value: str | dict[str, Any]) -> LayoutSpec:
    """`tp=8,pp=4,dp=2,order=tp-cp-dp-pp`, or the same as a table.

    As in a declared layout, `etp` is tp unless given, `dp_shard` and `dp_replicate` divide the data ranks (FSDP shards
    over dp_shard · cp), and `world` and `edp` are checked. UsageError names the mistake.
    """
    table = _parse_layout(value) if isinstance(value, str) else dict(value)
    checked: dict[str, Any] = {name: table.pop(name) for name in ("world", "edp") if name in table}
    for name in ("sp", "external_dp"):
        if table.pop(name, 1) != 1:
            raise UsageError(f"[layout] {name}: theory knows no such axis; give the axes {', '.join(_AXES)}")
    _divided_data(table)
    if table.get("order") is not None:
        table["order"] = _order(table)
    if table.get("ep", 1) != 1:
        table.setdefault("etp", table.get("tp", 1))
    _table(LayoutSpec, table, "layout", ("order",))
    layout = LayoutSpec(**table)
    for name, found in (("world", layout.world_size), ("edp", layout.edp)):
        if checked.get(name, found) != found:
            raise UsageError(f"[layout] {name} = {checked[name]!r}: the other sizes make {found}")
    return layout


_AXES = ("tp", "cp", "dp", "pp")


def _divided_data(table: dict[str, Any]) -> None:
    """dp_shard and dp_replicate become dp and shard."""
    parts = [table.pop(n, None) for n in ("dp_shard", "dp_replicate")]
    if parts == [None, None]:
        return
    sizes = [1 if p is None else p for p in parts]
    if not all(isinstance(n, int) and n > 0 for n in (*sizes, table.get("dp", 1), table.get("cp", 1))):
        raise UsageError("[layout] dp_shard, dp_replicate, dp and cp must be whole numbers above zero")
    table["dp"] = table.get("dp", 1) * sizes[0] * sizes[1]
    table.setdefault("shard", sizes[0] * table.get("cp", 1))


def _order(table: dict[str, Any]) -> tuple[str, ...]:
    """Axes of the world, fastest first; experts have a factorisation of their own, parts of dp are one axis."""
    order = table["order"]
    names = order.split("-") if isinstance(order, str) else list(order)
    names = ["dp" if str(a).startswith("dp_") else a for a in names if a not in ("ep", "etp", "edp", "sp")]
    names = [a for i, a in enumerate(names) if i == 0 or a != "dp" or names[i - 1] != "dp"]
    # An axis that is not named has one rank and may stand anywhere.
    return (*names, *(a for a in _AXES if a not in names and table.get(a, 1) == 1))


def _parse_layout(text: str) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, sign, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not sign or not value:
            raise UsageError(f"layout {text!r}: {part!r} is not AXIS=SIZE, as in tp=8,pp=4,dp=2")
        if name in table:
            raise UsageError(f"layout {text!r}: {name} is given twice")
        if name != "order" and not (value.isascii() and value.isdigit() and int(value) > 0):
            raise UsageError(f"layout {text!r}: {name} must be a size above zero, not {value!r}")
        table[name] = value if name == "order" else int(value)
    return table


def hardware_of(table: dict[str, Any]) -> Hardware | None:
    """[hardware]: `name` of the catalogue or a device's name, `network` by name, and figures that override them."""
    if not table:
        return None
    given = dict(table)
    name, network = given.pop("name", None), given.pop("network", None)
    _table(Hardware, given, "hardware", ("peak_tflops",))
    peaks = given.get("peak_tflops", {})
    if not isinstance(peaks, dict) or not all(isinstance(v, (int, float)) and v > 0 for v in peaks.values()):
        raise UsageError("[hardware] peak_tflops must be a table of element type = TFLOP/s, as in { bf16 = 989 }")
    for key, value in given.items():
        if key != "peak_tflops" and value == 0:
            raise UsageError(f"[hardware] {key} = 0: expected a figure above zero")
    base = Hardware(id="given")
    if name is not None:
        base = catalogue.hardware_of_device(str(name)) or catalogue.hardware(str(name))
    if network is not None:
        given.setdefault("nic_gbps", catalogue.network_gbps(str(network)))
    return replace(base, **given)


def job_of(tables: dict[str, Any], *, defaults: bool = False) -> Job:
    """A job from the tables model, training, layout and hardware. UsageError says what is wrong and where."""
    for name in ("model", "training", "hardware"):
        if not isinstance(tables.get(name, {}), dict):
            raise UsageError(f"{name} must be a table")
    try:
        return Job(
            model_of(tables.get("model", {})),
            training_of(tables.get("training", {}), defaults=defaults),
            layout_of(tables.get("layout", {})),
            hardware_of(tables.get("hardware", {})),
        )
    except NoNumber as e:
        raise UsageError(str(e)) from None


def inputs_of(job: Job, tables: dict[str, Any]) -> list[Input]:
    """All inputs of a job as printed; what is not known is left out."""
    out = []
    for where, spec in (("model", job.model), ("layout", job.layout), ("training", job.training)):
        given = tables.get(where, {})
        given = _parse_layout(given) if isinstance(given, str) else given
        fallback = "catalogue" if where == "model" and "name" in given else "default"
        out += _inputs(where, spec, given, fallback)
    if job.hardware is not None:
        out += _inputs("hardware", job.hardware, tables.get("hardware", {}), "catalogue")
    return out


def _inputs(where: str, spec: Any, given: dict[str, Any], fallback: str) -> list[Input]:
    found = []
    for f in fields(spec):
        value = getattr(spec, f.name)
        if value is None or (where == "model" and f.name not in given and fallback == "default" and value is f.default):
            continue
        found.append(Input(f"{where}.{f.name}", value, "given" if f.name in given else fallback))
    return found
