"""Flight recorder dumps composed in code, as torch of each version writes them."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_767_189_400_000_000_000
Raw = dict[str, Any]
Group = tuple[str, str, tuple[int, ...]]


class Rank:
    """One rank's dump: calls are added in order, then it is written."""

    def __init__(self, rank: int, *groups: Group, world: int | None = None) -> None:
        self.rank = rank
        whole = (("0", "default_pg", tuple(range(world))),) if world else ()
        self.groups = {g[0]: g for g in (*whole, *groups) if rank in g[2]}
        self.entries: list[Raw] = []
        self.seq: dict[str, int] = dict.fromkeys(self.groups, 0)
        self.p2p: dict[str, int] = dict.fromkeys(self.groups, 0)
        self.done: dict[str, int] = dict.fromkeys(self.groups, 0)
        self.clock = T0

    def call(self, group: str, op: str = "all_reduce", state: str = "completed", **more: Any) -> Rank:
        """Issue one call; state: how far it came."""
        number = self.groups[group]
        self.clock += 1_000_000
        is_p2p = op.startswith(("send", "recv"))
        if is_p2p:
            self.p2p[group] += 1
        else:
            self.seq[group] += 1
        if state == "completed":
            self.done[group] = self.p2p[group] if is_p2p else self.seq[group]
        sizes = more.pop("sizes", [[4, 8]])
        entry: Raw = {
            "record_id": len(self.entries) + 7, "pg_id": list(self.groups).index(group),
            "process_group": (number[0], number[1]), "collective_seq_id": self.seq[group],
            "p2p_seq_id": self.p2p[group] if is_p2p else 0, "op_id": self.seq[group] + self.p2p[group],
            "is_p2p": is_p2p, "profiling_name": f"nccl:{op}", "input_sizes": sizes, "input_dtypes": ["BFloat16"],
            "output_sizes": sizes, "output_dtypes": ["BFloat16"], "time_created_ns": self.clock, "state": state,
            "time_discovered_started_ns": self.clock + 5 if state != "scheduled" else None,
            "time_discovered_completed_ns": self.clock + 900 if state == "completed" else None, "retired": False,
            "timeout_ms": 600_000, "thread_id": "1", "thread_name": "python",
            "frames": [{"name": "step", "filename": "/job/train.py", "line": 10 + len(self.entries)}],
        }  # fmt: skip
        self.entries.append(entry | more)
        return self

    def raw(self, version: str = "2.10", *, active_only: bool = False) -> Raw:
        """The dump as a dict; active_only: completed calls are left out, as a watchdog's dump leaves them."""
        return {
            "version": version, "comm_lib_version": "2.27.5",
            "pg_config": {g: {"name": g, "desc": d, "ranks": str(list(r))} for g, d, r in self.groups.values()},
            "pg_status": {
                str(i): {
                    "last_enqueued_collective": max(self.seq[g], self.p2p[g]) or -1, "last_started_collective": -1,
                    "last_completed_collective": self.done[g] or -1,
                }
                for i, g in enumerate(self.groups)
            },
            "entries": [e for e in self.entries if not active_only or e["state"] != "completed"],
        }  # fmt: skip

    def write(self, folder: Path, **how: Any) -> Path:
        """Write it as a pickle, the way the watchdog names it."""
        path = folder / f"comm_lib_trace_rank_{self.rank}"
        path.write_bytes(pickle.dumps(self.raw(**how), protocol=2))
        return path


def as_json(raw: Raw) -> bytes:
    """The JSON form: lists for pairs, no frames, 0 for times that are not there, counters as text."""
    entries = []
    for e in raw["entries"]:
        one = {k: v for k, v in e.items() if k != "frames"} | {"process_group": list(e["process_group"])}
        for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            one[name] = one[name] or 0
        entries.append(one)
    status = {k: {name: str(v) for name, v in one.items()} for k, one in raw["pg_status"].items()}
    out = raw | {"pg_status": status, "nccl_comm_state": {}}
    out.pop("entries")
    return json.dumps(out | ({"entries": entries} if entries else {})).encode()
