"""The command line: one module a sub-command, loaded only when it runs."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from tracekit.errors import TracekitError
from tracekit.version import __version__

COMMANDS = {
    "analyze": "Which strategy's communication nothing hid, per rank and step.",
    "dashboard": "Many runs in the browser: trends, and down to a single call.",
    "diff": "What changed between two runs, and what brings it about.",
    "doctor": "What is in these files, and how healthy they are.",
    "explain": "Why a communication call has the label it has.",
    "hang": "At which rank a hang began, from flight recorder dumps.",
    "perfetto": "A trace for ui.perfetto.dev: strategies as tracks, exposed parts as slices.",
    "layout": "The mesh of the job: degrees, order, groups, and what is missing.",
    "ops": "The operations of a pipeline job as a table for straggler analysis.",
    "report": "The run as one HTML page that opens without network.",
    "rules": "List and show the matching rules.",
    "runs": "A dataset of many runs: list, put files together, let old ones go.",
    "schema": "The published tables, column by column.",
    "simulate": "A theoretical job as traces: one Kineto file a rank, and what is true of it.",
    "theory": "What a layout should cost: collectives, bubble, FLOPs; no trace needed.",
}

EXIT_CODES = """\b
Exit codes:
  0  done
  1  the analysis failed
  2  wrong usage (options, rule files)
  3  nothing usable in the input
  4  a gate was crossed"""


_YOUNG = 50_000
"""Objects made before the cycle collector looks for the first time: loading the modules alone makes as many."""


class _Lazy(click.Group):
    """Loads a sub-command's module when it is asked for: `--help` imports nothing heavy."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"tracekit.commands.{name}").command
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from tracekit.parsers.core import state

        click.echo(f"tracekit, version {__version__}\ndecode stage: {state()}")
        ctx.exit()


@click.group(cls=_Lazy, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", "-V", is_flag=True, is_eager=True, expose_value=False, callback=_version,
    help="Show the version, and which decode stage reads Kineto files.",
)  # fmt: skip
@click.option("--debug", is_flag=True, envvar="TRACEKIT_DEBUG", help="Show the traceback of an unexpected error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Profiler traces of distributed LLM jobs: which parallel strategy cost how much time that nothing hid."""
    ctx.obj = {"debug": debug}


def main(args: list[str] | None = None) -> Any:
    """Entry point: runs the command and turns every error into a message and an exit code."""
    _prepare(whole_process=args is None)
    gc.set_threshold(_YOUNG, 20, 50)
    atexit.register(gc.freeze)  # what is left at the end goes with the process: no need to look for cycles in it
    debug = "--debug" in (sys.argv[1:] if args is None else args) or bool(os.environ.get("TRACEKIT_DEBUG"))
    try:
        code = cli.main(args, prog_name="tracekit", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as e:
        e.show()
        sys.exit(e.exit_code)
    except TracekitError as e:
        from tracekit.output.text import clean

        # A file's name must do nothing to the terminal; line breaks are ours.
        click.echo("tracekit: " + "\n".join(map(clean, str(e).split("\n"))), err=True)
        sys.exit(e.exit_code)
    except BrokenPipeError:
        _reader_has_gone()
    except SystemExit as e:
        if isinstance(e.__context__, BrokenPipeError):  # how click and rich report it
            _reader_has_gone()
        raise
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            _defect(e, debug)
        _full(e)
    except Exception as e:
        _defect(e, debug)
    sys.exit(code if isinstance(code, int) else 0)


def _defect(e: Exception, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    click.echo(
        f"tracekit: internal error: {type(e).__name__}: {e}\n"
        "This is a defect of tracekit, not of your trace. Run again with --debug and report the traceback.",
        err=True,
    )
    sys.exit(1)


def _full(e: OSError) -> NoReturn:
    """No space where output or temporary files go; what is still to be written is dropped."""
    import tempfile

    click.echo(
        f"tracekit: {e.strerror or e}: make room where the output goes and in {tempfile.gettempdir()}, or name another "
        "folder for temporary files in TMPDIR",
        err=True,
    )
    _drop_output()
    sys.exit(1)


def _prepare(*, whole_process: bool) -> None:
    """Set up the process, before any library is loaded; signals and threads only where it is the command's own."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - as long as the process
    # Arrow's own allocator keeps what it has once had; the system's is as fast for the few blocks of a run.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if not whole_process:
        return
    from tracekit.ingest.pool import claim

    claim()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was begun is cleaned up
    # No threads that a run has no use for: workers are forked from a process without any.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def _reader_has_gone() -> NoReturn:
    """The reader (head, less) has enough: nothing is wrong."""
    _drop_output()
    sys.exit(0)


def _drop_output() -> None:
    """Keep the interpreter from complaining at exit that it cannot write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
