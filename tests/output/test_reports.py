"""Text from a trace is data, never markup."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import tracekit as tk
from tracekit.output.markdown import escape, render
from tracekit.output.summary import clean, ms, percent, summarise
from tracekit.output.terminal import report
from tracekit.output.text import plain_name

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "[bold red]x[/] <script>alert(1)</script> | \x1b[31m `code` **b** \u202e"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trace whose names try to be markup."""
    folder = tmp_path_factory.mktemp("evil")
    args = {"device": 0, "stream": 7, "correlation": 1}
    host = {"ph": "X", "pid": 1, "tid": 1}
    kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "dur": 9, "args": args}
    events = [
        host | {"cat": "user_annotation", "name": EVIL, "ts": 0.5, "dur": 30},
        host | {"cat": "cuda_runtime", "name": "launch", "ts": 1.0, "dur": 1, "args": {"correlation": 1}},
        kernel | {"name": f"ncclDevKernel_AllReduce({EVIL})", "ts": 2},
        kernel | {"name": "gemm", "ts": 6},
    ]
    (folder / "t.json").write_text(json.dumps({"deviceProperties": [{"id": 0, "name": EVIL}], "traceEvents": events}))
    return tk.analyze(folder / "t.json", workers=1)


def test_terminal_shows_it_literally(result: Any) -> None:
    sink = io.StringIO()
    report(result.run, Console(file=sink, width=200, force_terminal=False))
    text = sink.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold red]" in text


def test_markdown_is_inert(result: Any) -> None:
    text = render(result.run)
    assert "<script>" not in text
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    bars = {
        len(row.replace("\\|", "")) - len(row.replace("\\|", "").replace("|", "")) for row in rows if "ncclDev" in row
    }
    assert len(bars) <= 1


def test_json_survives(result: Any) -> None:
    assert json.loads(result.to_json())["totals"][0]["exposed_ns"] == 4000


def test_no_comm_is_never_zero_percent(tmp_path: Path) -> None:
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "my_all_reduction",
        "pid": 0,
        "tid": 7,
        "ts": 2,
        "dur": 9,
        "args": {"device": 0, "stream": 7},
    }
    (tmp_path / "t.json").write_text(json.dumps({"deviceProperties": [], "traceEvents": [kernel]}))
    found = tk.analyze(tmp_path / "t.json", workers=1)
    summary = summarise(found.run)
    assert "No communication was recognised" in summary.verdict
    assert "%" not in summary.verdict
    assert found.document["totals"][0]["overlap_ratio"] is None
    assert found.document["totals"][0]["reason"] == "no-comm"
    assert any("my_all_reduction" in message for _, message in summary.findings)


def test_small_helpers() -> None:
    assert clean("a\x00b\u202ec") == "a?b?c"
    assert escape("a|b") == "a\\|b"
    assert "@octocat" not in escape("@octocat")
    assert "://" not in escape("https://example.org")
    assert (ms(1_500_000), ms(15_000_000), ms(1_500_000_000)) == ("1.500", "15.0", "1,500")
    assert (percent(1, 4), percent(1, 0)) == ("25.0 %", "–")


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        ("void cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*, int)", "cross_device_reduce_1stage"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int)", "deep_ep::intranode::dispatch"),
        ("torch/nn/modules/module.py(1787): _call_impl", "torch/nn/modules/module.py(1787): _call_impl"),
        ("FSDP::all_gather (layers.3)", "FSDP::all_gather (layers.3)"),
        ("Forward 0", "Forward 0"),
        ("", ""),
    ],
)  # fmt: skip
def test_kernels_are_named_without_types(name: str, plain: str) -> None:
    assert plain_name(name) == plain
