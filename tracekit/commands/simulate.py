"""`tracekit simulate`: a theoretical job as Kineto files, to view in Perfetto or to analyse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracekit.commands.theory import job_options, tables_of
from tracekit.errors import UsageError

DEFAULTS: dict[str, dict[str, Any]] = {
    "model": {"name": "llama3-8b"},
    "training": {"sequence": 4096, "micro_batch": 1, "micro_batches": 8},
    "hardware": {"name": "h100", "network": "ndr"},
}
"""What is simulated where nothing is said."""


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
@click.option("--batched/--overlapped", default=None, help="Megatron's blocking exchanges of 1F1B, or none that block.")
@click.option("--run", "run_file", metavar="FILE", help="TOML: model, layout, training, hardware, simulate.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Where the files go."
)
@click.option("--force", is_flag=True, help="Write into a directory that has files.")
def command(
    model: str | None, layers: int | None, layout: str | None, hardware: str | None, run_file: str | None, output: Path,
    force: bool, steps: int | None, framework: str | None, slow: tuple[str, ...], jitter: float | None,
    batched: bool | None, **given: Any,
) -> None:  # fmt: skip
    """Write what a job should look like: one Kineto file a rank and truth.json, which says what is true of them.

    Options override the file of --run. Perfetto opens the files, and `tracekit analyze DIR` reads them.
    """
    from tracekit import simulate as sim
    from tracekit.theory import NoNumber, job_of

    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; choose a directory")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise UsageError(f"{output} is not empty; choose another directory, or --force to write into it")
    tables = tables_of(run_file, model, layout, hardware, given)
    if "layout" not in tables:
        raise UsageError("say what to simulate: --layout tp=2,pp=2,dp=2, or --run FILE")
    for name, values in DEFAULTS.items():
        tables[name] = {**values, **tables.get(name, {})} if name == "training" else tables.get(name, values)
    if layers is not None:
        tables["model"] = {**tables["model"], "layers": layers}
    said = {"steps": steps, "framework": framework, "slow": _slow(slow), "jitter_ratio": jitter, "batched": batched}
    options = sim.options_of({**_settings(run_file), **{k: v for k, v in said.items() if v not in (None, {})}})
    try:
        result = sim.simulate(job_of(tables, defaults=True), options)
    except NoNumber as e:
        raise UsageError(str(e)) from None
    try:
        made = sim.write(result, output)
    except OSError as e:
        raise UsageError(f"{output}: cannot be written ({e.strerror or e})") from e
    click.echo(f"{len(made) - 1} ranks, {len(result.steps)} steps, {result.schedule.name}: {output}")


def _slow(given: tuple[str, ...]) -> dict[str, float]:
    """`RANK=FACTOR` texts; UsageError for others."""
    out: dict[str, float] = {}
    for text in given:
        rank, sign, factor = text.partition("=")
        try:
            out[rank] = float(factor)
        except ValueError:
            sign = ""
        if not sign:
            raise UsageError(f"--slow {text!r} is not RANK=FACTOR, as in 5=1.15")
    return out


def _settings(run_file: str | None) -> dict[str, Any]:
    """[simulate] of the run file, which `tables_of` has read without error."""
    from tracekit.label.layout.usermap import load_run

    if run_file is None:
        return {}
    found = load_run(Path(run_file)).get("simulate", {})
    if not isinstance(found, dict):
        raise UsageError(f"{run_file}: simulate must be a table, as in [simulate]")
    return found
