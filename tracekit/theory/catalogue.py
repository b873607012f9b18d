"""Public models and hardware by name, from the data files beside this module."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli

from tracekit.theory.errors import OutsideDomain
from tracekit.theory.machine import Hardware

if TYPE_CHECKING:
    from tracekit.theory.transformer import ModelSpec


@cache
def _data(name: str) -> dict[str, Any]:
    return tomli.loads((Path(__file__).with_name("data") / name).read_text("utf-8"))


def model_names() -> tuple[str, ...]:
    """Models of the catalogue."""
    return tuple(_data("models.toml"))


def model(name: str) -> ModelSpec:
    """A public model. OutsideDomain names the known ones; case and underscores do not matter."""
    key = name.lower().replace("_", "-")
    if key not in _data("models.toml"):
        raise OutsideDomain(f"no model {name!r} in the catalogue; there are {', '.join(model_names())}")
    return model_from(key, _data("models.toml")[key])


def model_from(name: str | None, table: dict[str, Any]) -> ModelSpec:
    """A model from a table of its sizes."""
    from tracekit.theory.transformer import Experts, LatentAttention, ModelSpec

    fields = dict(table)
    experts, mla = fields.pop("experts", None), fields.pop("mla", None)
    return ModelSpec(
        name=name,
        experts=Experts(**experts) if experts else None,
        mla=LatentAttention(**mla) if mla else None,
        **fields,
    )


def hardware_names() -> tuple[str, ...]:
    """GPUs and systems of the catalogue."""
    return tuple(e["id"] for kind in ("gpu", "system") for e in _data("hardware.toml")[kind])


def hardware(name: str) -> Hardware:
    """A GPU (its network unknown) or a system by its id, e.g. h100, dgx-h100."""
    key = name.lower().replace("_", "-")
    for entry in _data("hardware.toml")["system"]:
        if entry["id"] == key:
            return replace(hardware(entry["gpu"]), id=key, nic_gbps=network_gbps(entry["network"]))
    for entry in _data("hardware.toml")["gpu"]:
        if entry["id"] == key:
            return Hardware(**{k: v for k, v in entry.items() if k != "names"})
    raise OutsideDomain(f"no hardware {name!r} in the catalogue; there are {', '.join(hardware_names())}")


def hardware_of_device(device_name: str) -> Hardware | None:
    """The GPU that the profiler's deviceProperties name; None where the catalogue has no such part (PCIe cards, …)."""
    for entry in _data("hardware.toml")["gpu"]:
        if re.search(entry["names"], device_name.strip()):
            return hardware(entry["id"])
    return None


def network_gbps(name: str) -> float:
    """GB/s per direction of one adapter (or PCIe ×16) by name, e.g. ndr."""
    known = {e["id"]: float(e["nic_gbps"]) for e in _data("hardware.toml")["network"]}
    if name.lower() not in known:
        raise OutsideDomain(f"no network {name!r} in the catalogue; there are {', '.join(known)}")
    return known[name.lower()]
