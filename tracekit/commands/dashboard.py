"""`tracekit dashboard`: many runs in the browser."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("dashboard")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DATASET...")
@click.option("--port", type=click.IntRange(1, 65535), default=5006, show_default=True, help="Port to listen on.")
@click.option("--address", default="127.0.0.1", show_default=True, metavar="HOST",
              help="Address to listen on; another than this machine's lets others read the runs.")  # fmt: skip
@click.option("--origin", "origins", multiple=True, metavar="HOST:PORT",
              help="Address under which readers may open it, besides this machine's, as behind a proxy.")  # fmt: skip
@click.option(
    "--last", type=click.IntRange(min=1), default=100, show_default=True, metavar="N", help="Show the newest N runs."
)
@click.option("--show/--no-show", default=True, help="Open the browser.")
def command(
    folders: tuple[Path, ...], port: int, address: str, origins: tuple[str, ...], last: int, show: bool
) -> None:
    """Serve runs as a dashboard: trends over runs, and down from a run to step, rank and call.

    DATASET: what `tracekit analyze -o` wrote, or a folder of runs (`--as-run`). The address of the page says where you
    are, so it can be sent and opened again. Needs the extra `dashboard`, and no network.
    """
    from tracekit.output.dashboard import Store, require, serve

    require()
    serve(
        Store(folders, last=last), port=port, address=address, origins=origins, show=show,
        started=lambda url: click.echo(f"serving {url} (stop with Ctrl-C)", err=True),
    )  # fmt: skip
