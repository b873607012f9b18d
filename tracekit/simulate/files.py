"""Write a simulated job: one Kineto file a rank as torch 2.13 writes it, and `truth.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tracekit.simulate import kineto
from tracekit.simulate.clock import recorded
from tracekit.simulate.device import AUTOGRAD, COMPUTE, COPY, MAIN
from tracekit.simulate.run import START_NS
from tracekit.simulate.truth import truth

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.simulate.clock import Recorded
    from tracekit.simulate.device import Gpu, Work
    from tracekit.simulate.run import Progress, Simulation

BASE_NS = 1_790_857_026_000_000_000
DEVICES = {
    "a100": ("NVIDIA A100-SXM4-80GB", 8, 0, 108, 85_899_345_920),
    "h100": ("NVIDIA H100 80GB HBM3", 9, 0, 132, 84_929_347_584),
    "h200": ("NVIDIA H200", 9, 0, 132, 150_754_820_096),
    "b200": ("NVIDIA B200", 10, 0, 148, 191_503_400_960),
}
"""Hardware of the catalogue as a trace's deviceProperties give it: name, capability, processors, memory."""


def write(
    simulation: Simulation, folder: Path, ranks: Iterable[int] | None = None, level: int = 6,
    progress: Progress | None = None,
) -> list[Path]:  # fmt: skip
    """Write the files of `ranks` (default all) and the truth of all ranks; the same bytes for the same job.

    progress is called with (files written, files, name).
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    wanted = simulation.gpus if ranks is None else [simulation.gpus[r] for r in ranks]
    for gpu in wanted:
        made.append(folder / f"rank{gpu.rank}.json.gz")
        kineto.write_gzip(made[-1], text(simulation, gpu), level)
        if progress is not None:
            progress(len(made), len(wanted), made[-1].name)
    made.append(folder / "truth.json")
    made[-1].write_text(json.dumps(truth(simulation), indent=1) + "\n", "utf-8")
    return made


def text(simulation: Simulation, gpu: Gpu) -> str:
    """The file of one rank, on the clock of its node."""
    shown = recorded(gpu, simulation.clock(gpu.rank))
    return _header(simulation, gpu) + ",\n".join(_rows(simulation, shown)) + '\n  ],"traceName": "/tmp/trace.json" }\n'


def _header(simulation: Simulation, gpu: Gpu) -> str:
    """Everything before the events."""
    listed = [
        {"pg_name": g.name, "pg_desc": g.desc, "backend_config": "cuda:nccl", "pg_size": len(g.ranks),
         "ranks": list(g.ranks)}
        for g in simulation.groups.listed(gpu.rank)
    ]  # fmt: skip
    info = {
        "backend": "nccl", "rank": gpu.rank, "world_size": len(simulation.gpus), "pg_count": simulation.groups.count,
        "pg_config": listed, "nccl_version": "2.29.7",
    }  # fmt: skip
    hw = simulation.job.hardware
    node = int(hw.need("gpus_per_node")) if hw else 8
    name, major, minor, processors, memory = DEVICES.get(
        hw.id if hw else "", (hw.id if hw else "GPU", 9, 0, 132, 2**36)
    )
    device = (
        f'    {{\n      "id": 0, "name": "{name}", "totalGlobalMem": {memory},\n'
        f'      "computeMajor": {major}, "computeMinor": {minor},\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        f'      "regsPerBlock": 65536, "warpSize": 32,\n'
        f'      "sharedMemPerBlock": 49152, "numSms": {processors}\n    }}'
    )
    devices = ",\n".join(device.replace('"id": 0', f'"id": {i}') for i in range(min(node, 8)))
    return (
        f' {{\n    "schemaVersion": 1,\n    "deviceProperties": [\n{devices}\n    ],\n    \n'
        f'      "trace_id": "{gpu.rank:032X}",\n      "record_shapes": 1,\n      "cuda_runtime_version": 12080,\n'
        f'      "distributedInfo": {json.dumps(info)},\n      "host_name": "node{gpu.rank // node}",\n'
        f'    "displayTimeUnit": "ms",\n    "baseTimeNanoseconds": {BASE_NS},\n    "traceEvents": [\n    \n'
    )


def _device(simulation: Simulation, gpu: Recorded) -> int:
    """The GPU's number in its node, of the eight that a file lists."""
    hw = simulation.job.hardware
    return gpu.rank % (min(int(hw.need("gpus_per_node")), 8) if hw else 8)


def _rows(simulation: Simulation, gpu: Recorded) -> list[str]:
    """All events in the order of the writer: host, runtime mixed with device work, annotations, metadata."""
    pid, device = 52_000 + gpu.rank, _device(simulation, gpu)
    tids = {MAIN: pid, AUTOGRAD: pid + 640}
    out = [
        kineto.span(r.cat, r.name, pid, tids[r.thread], r.ts, r.dur,
                    f'"External id": {r.ext},"Record function id": 0, {r.args}"Ev Idx": {i}')
        for i, r in enumerate(gpu.host)
    ]  # fmt: skip
    end = max(gpu.cpu, *(w.end for w in gpu.device))
    took = end - START_NS
    out.append(
        kineto.span("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", START_NS, took, '"Op count": 0')
    )
    works = {w.corr: w for w in gpu.device}
    for call in gpu.runtime:
        ext = "" if call.ext is None else f'"External id": {call.ext}, '
        tid = tids[call.thread]
        args = f'{ext}"cbid": {call.cbid}, "correlation": {call.corr}'
        out.append(kineto.span("cuda_runtime", call.name, pid, tid, call.ts, call.dur, args))
        if call.flow:
            out.append(kineto.flow("s", call.corr, pid, tid, call.ts))
            out += _device_rows(works[call.corr], device)
    for work in gpu.device:
        if work.title:
            out.append(kineto.span("gpu_user_annotation", work.title, device, work.stream, work.start - 1,
                                   work.end - work.start + 2, f'"External id": {work.title_ext}'))  # fmt: skip
    return out + _closing(simulation, pid, device, tids, end)


def _device_rows(work: Work, device: int) -> list[str]:
    """A kernel, copy or memset and the end of its arrow."""
    cat = {"copy": "gpu_memcpy", "set": "gpu_memset"}.get(work.kind, "kernel")
    ext = "" if work.ext is None else f'"External id": {work.ext}, '
    queued = '"queued": 0, ' if cat == "kernel" else ""
    place = f'"device": {device}, "context": 1, "stream": {work.stream}, "correlation": {work.corr}'
    args = f"{ext}{queued}{place}, {work.args}"
    span = kineto.span(cat, work.name, device, work.stream, work.start, work.end - work.start, args)
    return [span, kineto.flow("f", work.corr, device, work.stream, work.start)]


def _closing(simulation: Simulation, pid: int, device: int, tids: dict[int, int], end: int) -> list[str]:
    """Metadata rows and the instants at the end of the list."""
    out = [kineto.metadata("process_labels", pid, 0, START_NS, '"labels": "CPU"')]
    out += [kineto.metadata("process_labels", gpu, 0, START_NS, f'"labels": "GPU {gpu}"') for gpu in range(device + 1)]
    names = {(pid, tids[MAIN]): f"thread {tids[MAIN]} (python)"}
    names[pid, tids[AUTOGRAD]] = f"thread {tids[AUTOGRAD]} (pt_autograd_0)"
    names.update({(device, s): f"stream {s}" for s in (COMPUTE, COPY, *simulation.streams)})
    out += [kineto.metadata("thread_name", p, t, START_NS, f'"name": "{name}"') for (p, t), name in names.items()]
    out.append(kineto.instant("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", START_NS))
    out.append(kineto.instant("Record Window End", "", "", end + 1_000))
    return out
