"""The job's hardware, and where groups lie on it: from run.toml, hosts and deviceProperties, never guessed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracekit.errors import UsageError
from tracekit.theory import Hardware, MissingInput, NoNumber, OutsideDomain, Placement, hardware_of_device, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.analysis.expected.calls import Recording

Row = dict[str, Any]
BOARD = 16
"""GPUs up to which fast links end at the host; beyond, a rack shares them."""


class Machine(Struct):
    """Hardware with what is known of nodes. `hosts`: rank → host; `gpus_per_node` with `source` of that number.

    `groups`: group id → ranks; `degrees`: axis → ranks of the layout. `reason`: why the hardware is not known.
    """

    hardware: Hardware | None
    gpus_per_node: int | None
    source: str | None
    hosts: Mapping[int, str]
    world: int | None
    groups: Mapping[str, tuple[int, ...]]
    degrees: Mapping[str, int]
    reason: str | None = None
    inputs: list[Row] = field(default_factory=list)

    def need(self) -> Hardware:
        """The hardware; MissingInput with the reason where it is not known."""
        if self.hardware is None:
            raise MissingInput(self.reason or "hardware")
        return self.hardware

    def members(self, group_id: str | None, peers: Sequence[int | None] = ()) -> tuple[int, ...] | None:
        """Ranks of a group, or the two ends of a message."""
        if peers:
            ends = [p for p in peers if p is not None]
            return tuple(sorted(ends)) if len(ends) == len(peers) else None
        return self.groups.get(group_id) if group_id is not None else None

    def place(self, members: tuple[int, ...] | None, size: int | None) -> Placement:
        """Nodes of a group. NoNumber says what is missing."""
        if members is not None and all(r in self.hosts for r in members):
            count = Counter(self.hosts[r] for r in members)
            if len(count) == 1 or not self._rack():
                return Placement(len(members), len(count), max(count.values()))
        if self.gpus_per_node is None:
            raise MissingInput("hardware.gpus_per_node (or hosts of all ranks)")
        if members is None:
            if size is None:
                raise MissingInput("the ranks or the size of the group")
            if self.world is None or self.world > self.gpus_per_node or size > self.world:
                raise MissingInput("the ranks of the group")
            return Placement(size, 1, size)
        found = place(members, self.gpus_per_node)
        if found.nodes > 1 and not self._one_domain():
            raise MissingInput("hardware.gpus_per_node (GPUs of several hosts may share fast links)")
        return found

    def _rack(self) -> bool:
        """Whether fast links span hosts."""
        usual = self.hardware.gpus_per_node if self.hardware else None
        return usual is not None and usual > BOARD

    def _one_domain(self) -> bool:
        """Whether the number of GPUs a node can be relied on: not where the usual board has more than is visible."""
        usual = self.hardware.gpus_per_node if self.hardware else None
        given = self.source == "given"
        return given or usual is None or self.gpus_per_node is None or usual <= self.gpus_per_node


def machine_of(
    recordings: Sequence[Recording],
    table: Mapping[str, Any],
    world: int | None,
    groups: Sequence[Row],
    degrees: Mapping[str, int],
) -> Machine:
    """Hardware by run.toml's [hardware], else by the device's name; GPUs a node likewise, else by deviceProperties.

    A single visible device tells nothing of the node: processes often see only their own.
    """
    hw, reason, inputs = _hardware(recordings, table)
    counts = {r.devices for r in recordings if r.devices > 1}
    per_node, source = None, None
    if {"gpus_per_node", "name"} & set(table) and hw is not None and hw.gpus_per_node:
        per_node, source = hw.gpus_per_node, "given"
    elif len(counts) == 1 and all(r.devices > 1 for r in recordings):
        per_node, source = counts.pop(), "deviceProperties"
    if per_node:
        inputs.append({"field": "hardware.gpus_per_node", "value": per_node, "source": source})
    members: dict[str, list[tuple[int, int]]] = {}
    for g in groups:
        members.setdefault(g["group_id"], []).append((g["position"], g["rank"]))
    hosts = {r.rank: r.host for r in recordings if r.rank is not None and r.host}
    return Machine(
        hw, per_node, source, hosts, world,
        {k: tuple(dict.fromkeys(rank for _, rank in sorted(v))) for k, v in members.items()}, dict(degrees), reason,
        inputs,
    )  # fmt: skip


def _hardware(
    recordings: Sequence[Recording], table: Mapping[str, Any]
) -> tuple[Hardware | None, str | None, list[Row]]:
    names = sorted({r.device_name for r in recordings if r.device_name})
    given = dict(table)
    found = hardware_of_device(names[0]) if len(names) == 1 else None
    if given and "name" not in given and found is not None:
        given["name"] = names[0]
    if given:
        from tracekit.theory.config import hardware_of

        try:
            hw = hardware_of(given)
        except (OutsideDomain, NoNumber) as e:
            raise UsageError(f"[hardware] {e}") from None
        return hw, None, [{"field": f"hardware.{k}", "value": v, "source": "given"} for k, v in table.items()]
    if not names:
        return None, "hardware: no file names a device", []
    if len(names) > 1:
        return None, f"hardware: several kinds of device ({', '.join(names[:3])})", []
    if found is None:
        return None, f"hardware: {names[0]} is not in the catalogue; give [hardware]", []
    return found, None, [{"field": "hardware", "value": f"{found.id} ({names[0]})", "source": "catalogue"}]
