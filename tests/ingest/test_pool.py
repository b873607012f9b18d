"""Worker processes are forked from a process that nothing else runs in, else from a server; both load the same."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tracekit.ingest import pool

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
SAMPLE, PIPELINE = SAMPLES / "gloo-fsdp2", SAMPLES / "gpu-tp2-pp2-dp2"


@pytest.mark.parametrize(("names", "several"), [([], False), (["a.json"], False), (["a.json", "b.json"], True)])
def test_a_folder_with_one_file_needs_no_workers(tmp_path: Path, names: list[str], several: bool) -> None:
    for name in names:
        (tmp_path / name).touch()
    started: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("multiprocessing.forkserver.ensure_running", lambda: started.append(True))
        pool.start_early([str(tmp_path)], 2)
        pool.start_early([str(tmp_path)], 1)
    assert bool(started) is several


def test_the_server_loads_labels_and_analysis_but_no_plots() -> None:
    code = (
        "import sys, tracekit.ingest.preload, tracekit.ingest.worker as w;"
        "print(len(w._rules_cache), *(m in sys.modules for m in "
        "('tracekit.parsers.kineto', 'tracekit.analysis.rank', 'pandas', 'rich', 'tracekit.theory')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True", "False", "False", "False"]


def test_workers_import_nothing_from_the_working_folder(tmp_path: Path) -> None:
    for name in ("bisect.py", "click.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the working folder')")
    (tmp_path / "tracekit").mkdir()
    (tmp_path / "tracekit" / "__init__.py").write_text("open('imported', 'w').close()")
    code = "import sys; del sys.path[0]; from tracekit.commands import main; main()"
    command = [sys.executable, "-c", code, "analyze", str(SAMPLE), "--workers", "2", "-q", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "working folder" not in done.stderr
    assert not (tmp_path / "imported").exists()


ASIDE = """
import os, sys, threading
from tracekit.ingest import pool
if "claimed" in sys.argv:
    pool.claim()
if "threads" in sys.argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
here = os.getpid()
print(pool.forkable(), pool.Aside(2, os.getpid).result() != here, pool.Aside(1, os.getpid).result() != here)
print("done here:", pool.Aside(2, lambda: os.getpid() == here or os._exit(9)).result())
try:
    pool.Aside(2, int, "x").result()
except ValueError:
    print("refused here:", os.getpid() == here)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells the threads of a process")
@pytest.mark.parametrize(
    ("how", "forks"), [((), False), (("claimed",), True), (("claimed", "threads"), False), (("threads",), False)]
)
def test_forked_only_from_the_command_and_without_threads(how: tuple[str, ...], forks: bool) -> None:
    command = [sys.executable, "-W", "error", "-c", ASIDE, *how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [f"{forks} {forks} False", "done here: True", "refused here: True"]
    assert (done.stdout.splitlines(), done.stderr) == (said, "")


ORPHAN = """
import os, signal, sys
from tracekit.ingest import pool
pool.claim()
if sys.argv[1] == "aside":
    aside = pool.Aside(2, bytes, 4 << 20)
else:
    told = []
    def waiting():
        told.append(1)
        if len(told) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
    next(pool.Workers(2).each(signal.sigwait, [({signal.SIGUSR1},)] * 3, [0] * 3, waiting))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells a process that its parent has gone")
@pytest.mark.parametrize("kind", ["aside", "workers"])
def test_nothing_outlives_a_command_that_is_killed(kind: str) -> None:
    """Whoever reads the output of the command sees its end: nobody else holds it open."""
    command = [sys.executable, "-c", ORPHAN, kind]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (-9, b"", b"")


RUN = """
import sys
import tracekit.ingest.pool as pool
from tracekit.commands import main
def say(kind, inner):
    def outer(*args):
        print(kind, file=sys.stderr)
        return inner(*args)
    return outer
pool._server = say("server", pool._server)
pool.Aside.result = say("aside", pool.Aside.result)
pool._told = say("forked", pool._told)
main()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells the threads of a process")
def test_the_command_forks_its_workers_and_gives_the_same() -> None:
    command = [sys.executable, "-W", "error", "-P", "-c", RUN, "analyze", str(PIPELINE), "--json", "--workers"]
    one, two = (subprocess.run([*command, n], capture_output=True, text=True, check=True) for n in "12")
    assert one.stdout == two.stdout
    assert one.stderr.split() == ["aside"]
    assert sorted(two.stderr.split()) == ["aside", "forked"]


def test_results_come_in_the_order_of_the_jobs() -> None:
    told: list[int] = []
    jobs = [(n, n + 1) for n in range(6)]
    found = pool.Workers(2).each(max, jobs, [5, 1, 4, 2, 3, 0], lambda: told.append(1))
    assert [*found] == [1, 2, 3, 4, 5, 6]
    assert told


def test_more_jobs_later_get_more_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def threads(count: int, **_: object) -> ThreadPoolExecutor:
        made.append(count)
        return ThreadPoolExecutor(count)

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", threads)
    monkeypatch.setattr(pool, "_context", lambda: None)
    with pool.Workers(3) as workers:
        for jobs in (1, 2, 2, 5):
            assert [*workers.each(abs, [(-1,)] * jobs, [0] * jobs)] == [1] * jobs
    assert made == [2, 3]
