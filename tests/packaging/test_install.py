"""The wheel and an editable install, each in a new venv, each running the command from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "sample_traces" / "gpu-tp2-pp2-dp2"


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is in the failure message."""
    done = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git would ship."""
    out = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check", "-w", out, ROOT, cwd=out
    )
    return next(out.glob("tracekit-*.whl"))


def new_venv(folder: Path) -> Path:
    """A venv that sees the dependencies of the test environment, but not its tracekit."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    here = [p for p in sys.path if p.endswith("site-packages")]
    target = next((folder / "lib").glob("python*/site-packages"))
    # A .pth file adds the dependencies only; the editable hook of this environment stays outside.
    (target / "dependencies.pth").write_text("\n".join(here) + "\n")
    return python


def check(python: Path, tmp_path: Path) -> None:
    """The command runs, the data is inside, and `parsers` is no top-level package."""
    command = python.parent / "tracekit"
    assert run(command, "--version", cwd=tmp_path).stdout.startswith("tracekit, version ")
    done = run(command, "analyze", SAMPLE, "--json", "--workers", "1", cwd=tmp_path)
    assert '"schema_version"' in done.stdout
    assert "kernel" in run(command, "rules", "list", cwd=tmp_path).stdout
    assert "llama3-70b" in run(command, "theory", "--list", cwd=tmp_path).stdout
    probe = "import tracekit.parsers, tracekit.rules; from importlib.util import find_spec as f"
    probe += "; print(f('parsers'), f('rules'))"
    assert run(python, "-c", probe, cwd=tmp_path).stdout.split() == ["None", "None"]


def test_wheel(wheel: Path, tmp_path: Path) -> None:
    python = new_venv(tmp_path / "venv")
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--ignore-installed",
        "--disable-pip-version-check", wheel, cwd=tmp_path)  # fmt: skip
    where = run(python, "-c", "import tracekit.parsers; print(tracekit.parsers.__file__)", cwd=tmp_path).stdout
    assert str(tmp_path) in where
    check(python, tmp_path)


def test_editable(tmp_path: Path) -> None:
    python = new_venv(tmp_path / "venv")
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--ignore-installed",
        "--disable-pip-version-check", "-e", ROOT, cwd=tmp_path)  # fmt: skip
    where = run(python, "-c", "import tracekit.parsers; print(tracekit.parsers.__file__)", cwd=tmp_path).stdout
    assert where.strip() == str(ROOT / "parsers" / "__init__.py")
    check(python, tmp_path)


def test_wheel_ships_rules_and_types(wheel: Path) -> None:
    import zipfile

    names = set(zipfile.ZipFile(wheel).namelist())
    assert "tracekit/py.typed" in names
    shipped = {Path(n).name for n in names if n.startswith("tracekit/rules/") and n.endswith(".toml")}
    assert shipped == {p.name for p in (ROOT / "rules").glob("*.toml")}


def test_without_a_compiler(tmp_path: Path) -> None:
    """The install succeeds, and the pure Python path reads."""
    python = new_venv(tmp_path / "venv")
    source = tmp_path / "source"
    keep = shutil.ignore_patterns(".*", "*.so", "build", "dist", "*.egg-info", "tests", "benchmarks", "demo-out")
    shutil.copytree(ROOT, source, ignore=keep)
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--ignore-installed",
        "--disable-pip-version-check", source, cwd=tmp_path, env={"CC": "false"})  # fmt: skip
    where = run(python, "-c", "import tracekit.parsers; print(tracekit.parsers.__file__)", cwd=tmp_path).stdout
    assert not list(Path(where.strip()).parent.glob("_core*.so"))
    said = run(python.parent / "tracekit", "--version", cwd=tmp_path, env={"TRACEKIT_CORE": ""}).stdout
    assert "pure Python (the compiled core is not built)" in said
    done = run(python.parent / "tracekit", "analyze", SAMPLE, "--json", "--workers", "1", cwd=tmp_path,
               env={"TRACEKIT_CORE": ""})  # fmt: skip
    assert '"schema_version"' in done.stdout
