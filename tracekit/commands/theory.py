"""`tracekit theory`: what a layout's communication, bubble and FLOPs should be, without any trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import options
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_TRAINING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--sequence", {"type": int, "metavar": "TOKENS", "help": "Tokens of a sequence."}),
    ("--micro-batch", {"type": int, "metavar": "N", "help": "Sequences of a micro-batch."}),
    ("--micro-batches", {"type": int, "metavar": "N", "help": "Micro-batches a data-parallel rank and step."}),
    ("--schedule", {"metavar": "NAME", "help": "Pipeline schedule: GPipe, 1F1B, Interleaved1F1B, ZB-H1, ZBV, …"}),
    ("--virtual", {"type": int, "metavar": "N", "help": "Pipeline stages a rank (interleaved schedules)."}),
    ("--recompute", {"metavar": "MODE", "help": "none, selective or full."}),
    ("--dtype", {"metavar": "TYPE", "help": "Element type of activations and products: bf16, fp16, fp8, fp32."}),
    ("--param-dtype", {"metavar": "TYPE", "help": "Element type of gathered parameters; default: --dtype."}),
    ("--grad-dtype", {"metavar": "TYPE", "help": "Element type of reduced gradients."}),
    ("--data-parallel", {"metavar": "KIND", "help": "ddp, zero1, zero2 or fsdp."}),
    ("--context-method", {"metavar": "KIND", "help": "ring, all_gather or ulysses."}),
    ("--sequence-parallel/--no-sequence-parallel", {"default": None, "help": "Megatron's sequence parallelism."}),
    ("--reshard/--no-reshard", {"default": None, "help": "FSDP frees parameters after the forward."}),
    ("--reduce-once/--reduce-each", {"default": None, "help": "Gradients reduced once a step, or each micro-batch."}),
    ("--fp8-dispatch/--no-fp8-dispatch", {"default": None, "help": "Tokens go to experts as FP8 with scales."}),
    ("--causal/--non-causal", {"default": None, "help": "Count half or all of the attention scores."}),
    ("--mtp/--no-mtp", {"default": None, "help": "Train the model's multi-token prediction modules."}),
)
_HARDWARE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--network", {"metavar": "NAME", "help": "Adapter of each GPU: hdr, ndr, xdr, roce400, efa-p5, …"}),
    ("--nic-gbps", {"type": float, "metavar": "GB/S", "help": "The same in 10^9 bytes/s per direction."}),
    ("--gpus-per-node", {"type": int, "metavar": "N", "help": "GPUs that share a node's fast links."}),
)


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options for what [training] and [hardware] of a run file hold."""
    for name, more in reversed((*_TRAINING, *_HARDWARE)):
        function = click.option(name, **more)(function)
    return function


def option_of(name: str) -> str | None:
    """The option that gives an input of a job, e.g. `training.context_method`: its own, else that of its table."""
    table, _, key = name.split(" ")[0].partition(".")
    if table not in ("model", "training", "hardware"):
        return None
    option = "--nic-gbps" if key == "nic_gbps" else f"--{key.replace('_', '-')}"
    own = next((known for known, _ in (*_TRAINING, *_HARDWARE) if option in known.split("/")), None)
    return own or (None if table == "training" else f"--{table}")


@click.command("theory")
@click.option("--model", metavar="NAME", help="Public model, e.g. llama3-70b; --list shows them.")
@click.option("--layout", metavar="AXES", help="Degrees, e.g. tp=8,pp=4,dp=2; also cp, ep, etp, shard, order.")
@click.option("--hardware", metavar="NAME", help="GPU or system, e.g. h100, dgx-h100, or the name a trace gives.")
@job_options
@click.option("--run", "run_file", metavar="FILE", help="TOML with tables model, layout, training, hardware.")
@click.option("--list", "listing", is_flag=True, help="List the models and hardware of the catalogue.")
@options.as_json
def command(
    model: str | None, layout: str | None, hardware: str | None, run_file: str | None, listing: bool, as_json: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Expected collectives of a job with bytes, counts and times, its pipeline bubble, FLOPs and bounds of MFU.

    No trace is read. What lacks an input is null, with the reason. Options override the file of --run.
    """
    from tracekit.output import theory as output
    from tracekit.theory import hardware_names, job_of, model_names, plan
    from tracekit.theory.config import inputs_of

    if listing:
        found = {"models": list(model_names()), "hardware": list(hardware_names())}
        click.echo(json.dumps(found, indent=1) if as_json else output.catalogue(found))
        return
    tables = tables_of(run_file, model, layout, hardware, given)
    if not tables:
        raise UsageError("say what to compute: --model and --layout, or --run FILE (see tracekit theory --help)")
    job = job_of(tables, defaults=True)
    result, inputs = plan(job), inputs_of(job, tables)
    if as_json:
        click.echo(json.dumps(output.document(result, inputs), indent=1, allow_nan=False))
    else:
        click.echo("\n".join(output.lines(result, inputs)))


def tables_of(
    run_file: str | None, model: str | None, layout: str | None, hardware: str | None, given: dict[str, Any]
) -> dict[str, Any]:
    """Tables of the run file with the options over them."""
    tables = _read(run_file) if run_file else {}
    if model is not None:
        tables["model"] = {"name": model}
    if layout is not None:
        tables["layout"] = layout
    if hardware is not None:
        tables["hardware"] = {"name": hardware}
    for known, table in ((_TRAINING, "training"), (_HARDWARE, "hardware")):
        names = {name.split("/")[0].removeprefix("--").replace("-", "_") for name, _ in known}
        values = {k: v for k, v in given.items() if k in names and v is not None}
        if values:
            tables[table] = {**tables.get(table, {}), **values}
    return tables


def _read(name: str) -> dict[str, Any]:
    """The four tables of a run file."""
    from pathlib import Path

    from tracekit.label.layout.usermap import load_run

    found = load_run(Path(name))
    tables: dict[str, Any] = {k: found[k] for k in ("model", "layout", "training", "hardware") if k in found}
    wrong = [k for k, v in tables.items() if not isinstance(v, dict) and not (k == "layout" and isinstance(v, str))]
    if wrong:
        raise UsageError(f"{name}: {', '.join(wrong)} must be a table, as in [{wrong[0]}]")
    return tables
