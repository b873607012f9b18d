"""`tracekit simulate`: a theoretical job as Kineto files, to view in Perfetto or to analyse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracekit.commands.progress import Progress
from tracekit.commands.theory import job_options, option_of, tables_of
from tracekit.errors import UsageError

DEFAULTS: dict[str, dict[str, Any]] = {
    "model": {"name": "llama3-8b"},
    "training": {"sequence": 4096, "micro_batch": 1, "micro_batches": 8},
    "hardware": {"name": "h100", "network": "ndr"},
}
"""What is simulated where nothing is said."""
_PARTS = {"network", "nic_gbps", "gpus_per_node"}
"""What is said of the default hardware when no other is named."""


@click.command("simulate")
@click.option("--model", metavar="NAME", help="Public model, e.g. llama3-70b; default llama3-8b.")
@click.option("--layers", type=click.IntRange(min=1), metavar="N", help="Layers, instead of the model's own number.")
@click.option("--layout", metavar="AXES", help="Degrees, e.g. tp=2,pp=2,dp=2,order=tp-dp-pp; also cp, ep, shard.")
@click.option("--hardware", metavar="NAME", help="GPU or system; default h100 with 400 Gb/s a GPU.")
@job_options
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Steps to simulate; default 3.")
@click.option("--framework", type=click.Choice(["megatron", "torch"]), help="Whose names the traces have.")
@click.option(
    "--slow", metavar="RANK=FACTOR", multiple=True, help="A rank that computes slower, e.g. 5=1.15; repeatable."
)
@click.option(
    "--jitter", type=click.FloatRange(0, 1, max_open=True), metavar="SHARE", help="Spread of durations, e.g. 0.02."
)
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Another jitter; default 0.")
@click.option("--slow-stage", metavar="STAGE=FACTOR", multiple=True, help="A pipeline stage with more to compute.")
@click.option("--long", metavar="MB=FACTOR", multiple=True, help="A micro-batch with more to compute.")
@click.option("--late-input", metavar="RANK=US", multiple=True, help="A host that waits for its data in each step.")
@click.option("--slow-link", metavar="RANK=FACTOR", multiple=True, help="A rank whose transfers take longer.")
@click.option("--p2p-latency", type=click.FloatRange(min=0), metavar="US", help="Added to transfers between stages.")
@click.option("--end-skew", type=click.FloatRange(min=0), metavar="US", help="How far apart ranks see a transfer end.")
@click.option("--clock", metavar="NODE=US", multiple=True, help="A node whose clock is ahead.")
@click.option("--drift", metavar="NODE=PPM", multiple=True, help="A node whose clock runs fast.")
@click.option("--batched/--overlapped", default=None, help="Megatron's blocking exchanges of 1F1B, or none that block.")
@click.option("--run", "run_file", metavar="FILE", help="TOML: model, layout, training, hardware, simulate.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where the files go."
)
@click.option("--force", is_flag=True, help="Write into a directory that has files.")
@click.option("-q", "--quiet", is_flag=True, help="Write the files and say nothing.")
def command(
    model: str | None, layers: int | None, layout: str | None, hardware: str | None, run_file: str | None, output: Path,
    force: bool, steps: int | None, framework: str | None, slow: tuple[str, ...], jitter: float | None,
    batched: bool | None, seed: int | None, slow_stage: tuple[str, ...], long: tuple[str, ...],
    late_input: tuple[str, ...], slow_link: tuple[str, ...], p2p_latency: float | None, end_skew: float | None,
    clock: tuple[str, ...], drift: tuple[str, ...], quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Write what a job should look like: one Kineto file a rank and truth.json, which says what is true of them.

    Options override the file of --run. Perfetto opens the files, and `tracekit analyze DIR` reads them.
    """
    from tracekit import simulate as sim
    from tracekit.simulate.options import mapping
    from tracekit.theory import MissingInput, NoNumber, job_of

    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; choose a directory")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise UsageError(f"{output} is not empty; choose another directory, or --force to write into it")
    tables = tables_of(run_file, model, layout, hardware, given)
    if "layout" not in tables:
        raise UsageError("say what to simulate: --layout tp=2,pp=2,dp=2, or --run FILE")
    for name, values in DEFAULTS.items():
        if name == "training" or set(tables.get(name, {})) <= _PARTS:
            tables[name] = {**values, **tables.get(name, {})}
    if layers is not None:
        tables["model"] = {**tables["model"], "layers": layers}
    said: dict[str, Any] = {
        "steps": steps, "framework": framework, "jitter_ratio": jitter, "batched": batched, "seed": seed,
        "p2p_latency_us": p2p_latency, "end_skew_us": end_skew, "slow": mapping("--slow", slow),
        "slow_stage": mapping("--slow-stage", slow_stage), "long_micro_batches": mapping("--long", long),
        "late_input_us": mapping("--late-input", late_input), "slow_link": mapping("--slow-link", slow_link),
        "clock_us": mapping("--clock", clock), "drift_ppm": mapping("--drift", drift),
    }  # fmt: skip
    options = sim.options_of({**_settings(run_file), **{k: v for k, v in said.items() if v not in (None, {})}})
    with Progress(quiet) as progress:
        try:
            result = sim.simulate(job_of(tables, defaults=True), options, progress.step("steps simulated"))
        except MissingInput as e:
            giving = sorted({option for name in e.names if (option := option_of(name))})
            raise UsageError(f"{e}" + (f": give {' and '.join(giving)}" if giving else "")) from None
        except NoNumber as e:
            raise UsageError(str(e)) from None
        try:
            made = sim.write(result, output, progress=progress.step("ranks written"))
        except OSError as e:
            raise UsageError(f"{output}: cannot be written ({e.strerror or e})") from e
    if not quiet:
        click.echo(f"{len(made) - 1} ranks, {len(result.steps)} steps, {result.schedule.name}: {output}")


def _settings(run_file: str | None) -> dict[str, Any]:
    """[simulate] of the run file, which `tables_of` has read without error."""
    from tracekit.label.layout.usermap import load_run

    if run_file is None:
        return {}
    found = load_run(Path(run_file)).get("simulate", {})
    if not isinstance(found, dict):
        raise UsageError(f"{run_file}: simulate must be a table, as in [simulate]")
    return found
