"""Worker processes start from a server that has loaded what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.ingest import pool

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "gloo-fsdp2"


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
