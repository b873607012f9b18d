"""One small job and what its witnesses say of it: Kineto traces, NCCL logs, Inspector logs, flight recorder dumps.

Every rank runs the same steps: an all-gather and a reduce-scatter in its tensor-parallel pair, an all-reduce over all
ranks, an all-to-all in the expert group. Sources print the same calls the way their formats are documented.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flight_writer
import kineto_writer as kw

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_767_189_400_000_000_000
PIDS = 4000
RECORD = "record_param_comms"
SIZE = {"BFloat16": 2, "Float": 4}
ENUM = {"BFloat16": 9, "Float": 7}
NCCL = {"_allgather_base": "AllGather", "_reduce_scatter_base": "ReduceScatter", "allreduce": "AllReduce",
        "all_to_allv": "AlltoAll"}  # fmt: skip


@dataclass
class Made:
    """One call of one rank, as it was: the truth. number: in its group from 0 on; kind_number: among its operation."""

    op: str
    group: str
    count_in: int
    count_out: int
    dtype: str
    at: int
    dur: int
    number: int
    kind_number: int
    step: int
    algorithm: str = "RING"
    protocol: str = "LL"
    channels: int = 4


DESCRIPTIONS = {"0": "default_pg", "1": "mesh_tp", "2": "mesh_ep", "3": "mesh_dp"}


@dataclass
class Job:
    """A job of `world` ranks in pairs: group 0 holds all, 1 and 2 a pair each (two communicators), 3 across pairs."""

    world: int = 4
    steps: int = 6

    @property
    def ranks(self) -> range:
        return range(self.world)

    def members(self, rank: int, group: str) -> tuple[int, ...]:
        if group == "0":
            return tuple(self.ranks)
        if group in ("1", "2"):
            first = rank // 2 * 2
            return (first, first + 1)
        return tuple(r for r in self.ranks if r % 2 == rank % 2)

    def hash(self, rank: int, group: str) -> int:
        return 0xABC0_0000_0000_0000 + int(group) * 0x1_0000 + self.members(rank, group)[0]

    def calls(self, rank: int) -> list[Made]:
        """All calls of a rank's life, in order."""
        out: list[Made] = []
        numbers: dict[str, int] = {}
        kinds: dict[tuple[str, str], int] = {}
        at = T0 + 1_000_000
        for step in range(self.steps):
            plan = [
                ("_allgather_base", "1", 1024, 2048, "BFloat16"), ("_reduce_scatter_base", "1", 2048, 1024, "BFloat16"),
                ("all_to_allv", "2", 4096, 4096, "BFloat16"), ("_allgather_base", "1", 512, 1024, "BFloat16"),
                ("allreduce", "3", 8192, 8192, "Float"), ("allreduce", "0", 4, 4, "Float"),
            ]  # fmt: skip
            for i, (op, group, given, taken, dtype) in enumerate(plan):
                jitter = (step * 37 + i * 11 + rank * 3) % 23
                at += 200_000 + 7_000 * jitter
                big = taken >= 4096
                made = Made(
                    op, group, given, taken, dtype, at, 20_000 + 1_000 * ((step * 13 + i * 7) % 17), numbers.get(group, 0),
                    kinds.get((group, op), 0), step, "TREE" if big else "RING", "SIMPLE" if big else "LL", 8 if big else 4,
                )  # fmt: skip
                numbers[group] = made.number + 1
                kinds[group, op] = made.kind_number + 1
                out.append(made)
        return out

    # ------------------------------------------------------------------ sources

    def kineto(self, folder: Path, rank: int, steps: range, *, seq: bool = True, name: str = "rank{}.json") -> Path:
        """The trace of the steps in `steps`: record, launch and kernel of every call, and a compute kernel beside it."""
        events: list[Any] = []
        for i, c in enumerate(self.calls(rank)):
            if c.step not in steps:
                continue
            ts, ext = c.at - kw.BASE, 10 + i
            args: dict[str, Any] = {
                "Collective name": c.op, "In msg nelems": c.count_in, "Out msg nelems": c.count_out, "dtype": c.dtype,
                "Group size": len(self.members(rank, c.group)), "Process Group Name": c.group,
                "Process Group Description": DESCRIPTIONS[c.group], "In split size": "[]", "Out split size": "[]",
                "Process Group Ranks": str(list(self.members(rank, c.group))),
            }  # fmt: skip
            if seq:
                args["Seq"] = c.number + 1
            events += [
                kw.op(RECORD, ts, 30_000, ext=ext, **args), kw.launch(ts + 5_000, 5_000, ext),
                kw.kernel(f"ncclDevKernel_{NCCL[c.op]}_RING_LL(x)", ts + 12_000, c.dur, corr=ext, stream=20, **args),
                kw.op("aten::mm", ts + 40_000, 9_000, ext=5000 + ext), kw.launch(ts + 42_000, 3_000, 5000 + ext),
                kw.kernel("gemm", ts + 50_000, 40_000, corr=5000 + ext, stream=7),
            ]  # fmt: skip
        for e in events:
            if e["pid"] == 900:
                e["pid"] = PIDS + rank
        config = [
            {"pg_name": g, "pg_desc": DESCRIPTIONS[g], "backend_config": "cuda:nccl",
             "pg_size": len(self.members(rank, g)), "ranks": list(self.members(rank, g))}
            for g in "0123"
        ]  # fmt: skip
        info = {"backend": "nccl", "rank": rank, "world_size": self.world, "pg_count": 4, "pg_config": config}
        head = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": info, "host_name": "h0",
                "baseTimeNanoseconds": kw.BASE}  # fmt: skip
        return kw.write(folder / name.format(rank), events, head=head)

    def log(self, rank: int, *, pid: int | None = None, skip: int = 0, order: str = "3120") -> list[str]:
        """Lines of NCCL_DEBUG=INFO with INIT, COLL and TUNING: order: of the communicators' creation; skip: every
        `skip`-th call is missing.
        """
        head = f"h0:{PIDS + rank if pid is None else pid}:9 [{rank}] NCCL INFO "
        pointer = {g: f"0x55d0{int(g):02x}{rank:02x}" for g in "0123"}
        out = [
            f"{head}ncclCommInitRankConfig comm {pointer[g]} rank {self.members(rank, g).index(rank)} nranks "
            f"{len(self.members(rank, g))} cudaDev {rank} nvmlDev {rank} busId 1b000 commId 0x{self.hash(rank, g):x} - "
            "Init COMPLETE"
            for g in order
        ]  # fmt: skip
        for i, c in enumerate(self.calls(rank)):
            if skip and i % skip == skip - 1:
                continue
            n = len(self.members(rank, c.group))
            tail = f"op 0 root {{root}} comm {pointer[c.group]} [nranks={n}] stream 0x55e0"
            lines = [(NCCL[c.op], min(c.count_in, c.count_out), 0)]
            if c.op == "all_to_allv":
                lines = [(op, c.count_in // n, peer) for peer in range(n) for op in ("Send", "Recv")]
            for op, count, root in lines:
                out.append(
                    f"{head}{op}: opCount {c.number:x} sendbuff 0x7f00 recvbuff 0x7f80 count {count} datatype "
                    f"{ENUM[c.dtype]} {tail.format(root=root)}"
                )
            if c.op != "all_to_allv" and self.members(rank, c.group)[0] == rank:
                nbytes = min(c.count_in, c.count_out) * SIZE[c.dtype]
                out.append(
                    f"{head}{NCCL[c.op]}: {nbytes} Bytes -> Algo {c.algorithm} proto {c.protocol} "
                    f"channel{{Lo..Hi}}={{0..{c.channels - 1}}}"
                )
        return out

    def inspector(
        self, rank: int, *, least: int = 0, verbose: bool = False, offset: int = 0, pid: int | None = None
    ) -> list[str]:
        """Lines of the Inspector; least: shorter calls (bytes) are left out; offset: of its clock, ns."""
        out = []
        for c in self.calls(rank):
            size = min(c.count_in, c.count_out) * SIZE[c.dtype]
            if c.op == "all_to_allv" or size < least:
                continue
            perf: dict[str, Any] = {
                "coll": NCCL[c.op], "coll_sn": c.kind_number, "coll_msg_size_bytes": size,
                "coll_exec_time_us": round(c.dur / 1000), "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.0,
                "coll_busbw_gbs": 1.5,
            }  # fmt: skip
            if verbose:
                perf["event_trace_ts"] = {"coll_start_ts": (c.at + offset) // 1000 + 6, "coll_stop_ts": 0,
                                          "kernel_events": []}  # fmt: skip
            n = len(self.members(rank, c.group))
            head = {"id": f"0x{self.hash(rank, c.group):x}", "rank": self.members(rank, c.group).index(rank),
                    "n_ranks": n, "nnodes": 1}  # fmt: skip
            meta = {"inspector_output_format_version": "v4.0", "dump_timestamp_us": (c.at + offset) // 1000 + 10**6,
                    "hostname": "h0", "pid": PIDS + rank if pid is None else pid}  # fmt: skip
            out.append(json.dumps({"header": head, "metadata": meta, "coll_perf": perf}))
        return out

    def plugin(self, rank: int) -> list[str]:
        """A dump of NCCL's example plugin, left open: begin and end of every collective, times from its start."""
        out = ["["]
        for i, c in enumerate(self.calls(rank)):
            if c.op == "all_to_allv":
                continue
            args = {"SeqNum": c.kind_number, "CommHash": self.hash(rank, c.group), "Count": min(c.count_in, c.count_out),
                    "Rank": self.members(rank, c.group).index(rank), "Datatype": f"nccl{c.dtype.replace('BFloat', 'Bfloat')}",
                    "Algorithm": c.algorithm, "Protocol": c.protocol, "nChannels": c.channels}  # fmt: skip
            if c.dtype == "Float":
                args["Datatype"] = "ncclFloat32"
            head = {"name": NCCL[c.op], "cat": "COLL", "id": i, "pid": PIDS + rank, "tid": 1}
            out.append(json.dumps(head | {"ph": "b", "ts": (c.at - T0) / 1000, "args": args}) + ",")
            out.append(json.dumps(head | {"ph": "e", "ts": (c.at - T0) / 1000 + 50}) + ",")
        return out

    def recorder(self, rank: int) -> flight_writer.Rank:
        """The flight recorder's dump."""
        dump = flight_writer.Rank(rank, *((g, DESCRIPTIONS[g], self.members(rank, g)) for g in "123"), world=self.world)
        titles = {"_allgather_base": "_all_gather_base", "_reduce_scatter_base": "_reduce_scatter_base",
                  "allreduce": "all_reduce", "all_to_allv": "all_to_all"}  # fmt: skip
        for c in self.calls(rank):
            dump.call(
                c.group, titles[c.op], input_sizes=[[c.count_in]], output_sizes=[[c.count_out]], input_dtypes=[c.dtype],
                output_dtypes=[c.dtype], time_created_ns=c.at + 2_000,
                frames=[{"name": "all_reduce", "filename": "/site-packages/torch/distributed/distributed_c10d.py", "line": 9},
                        {"name": "train_step", "filename": "/job/train.py", "line": 10 + c.step}],
            )  # fmt: skip
        return dump


def write(path: Path, lines: list[str]) -> Path:
    """Lines to a file."""
    path.write_text("\n".join(lines) + "\n")
    return path
