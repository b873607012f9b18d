"""What other ranks and the user know reaches every rank, and nothing else does: the sample, changed in many ways."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tracekit as tk

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "gpu-tp2-pp2-dp2"
RANKS = range(8)
DESC = "Process Group Description"


def copy(folder: Path, ranks: Any = RANKS, name: Callable[[int], str] = "rank{}.json.gz".format) -> Path:
    for r in ranks:
        shutil.copy(SAMPLE / f"rank{r}.json.gz", folder / name(r))
    return folder


def blank(path: Path, *, names: bool = False) -> None:
    """Take the descriptions of all groups (and their names) out of a file."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    for group in data["distributedInfo"].get("pg_config", []):
        group["pg_desc"] = "undefined"
    if names:
        data["distributedInfo"].pop("pg_config", None)
    for event in data["traceEvents"]:
        args = event.get("args", {})
        if DESC in args:
            args[DESC] = "undefined"
            if names:
                args.pop("Process Group Name", None)
    path.write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))


def labels(folder: Path, **how: Any) -> dict[int, list[tuple[str, Any, Any]]]:
    table = tk.analyze(folder, workers=1, **how).arrow("collectives")
    out: dict[int, list[tuple[str, Any, Any]]] = {}
    for row in table.select(["rank", "strategy", "tier", "confidence"]).to_pylist():
        out.setdefault(row["rank"], []).append((row["strategy"], row["tier"], row["confidence"]))
    return out


@pytest.fixture(scope="module")
def whole() -> dict[int, list[tuple[str, Any, Any]]]:
    return labels(SAMPLE)


def test_a_missing_rank_changes_no_label_of_the_others(tmp_path, whole) -> None:
    found = labels(copy(tmp_path, [r for r in RANKS if r != 3]))
    assert found == {r: v for r, v in whole.items() if r != 3}


def test_names_and_order_of_files_change_no_label(tmp_path, whole) -> None:
    found = labels(copy(tmp_path, reversed(RANKS), lambda r: f"{'hgfedcba'[r]}.bin"))
    assert found == whole


def test_a_rank_without_descriptions_borrows_them_with_less_confidence(tmp_path, whole) -> None:
    copy(tmp_path)
    blank(tmp_path / "rank3.json.gz")
    found = labels(tmp_path)
    assert {r: v for r, v in found.items() if r != 3} == {r: v for r, v in whole.items() if r != 3}
    assert [s for s, _, _ in found[3]] == [s for s, _, _ in whole[3]]
    by_group = [(new, old) for new, old in zip(found[3], whole[3], strict=True) if new != old]
    assert by_group, "no label rested on a description"
    assert all(new[2] < old[2] for new, old in by_group)
    assert {new[0] for new, _ in by_group if new[1] == "B" and new[2] == 0.85} >= {"pp", "dp", "embedding"}


def test_a_job_without_descriptions_is_not_labelled_by_guessing(tmp_path, whole) -> None:
    copy(tmp_path)
    for r in RANKS:
        blank(tmp_path / f"rank{r}.json.gz", names=True)
    for r, found in labels(tmp_path).items():
        for new, old in zip(found, whole[r], strict=True):
            assert new[0] in {old[0], "unknown"} or new[1] not in {"A", "B"}, (r, new, old)


def test_the_declared_layout_labels_groups_without_names(tmp_path, whole) -> None:
    copy(tmp_path)
    for r in RANKS:
        blank(tmp_path / f"rank{r}.json.gz", names=True)
    bare, told = labels(tmp_path), labels(tmp_path, layout="tp=2,dp=2,pp=2,order=tp-dp-pp")
    for found, tiers in ((bare, [set(), {"C"}]), (told, [{"A"}])):
        pipeline = {v[1] for r in RANKS for v, old in zip(found[r], whole[r], strict=True) if old[0] == v[0] == "pp"}
        assert pipeline in tiers
    assert not [
        (new, old) for r in RANKS for new, old in zip(told[r], whole[r], strict=True)
        if new[0] not in {old[0], "unknown"}
    ]  # fmt: skip


def test_the_map_of_the_user_is_final(tmp_path) -> None:
    mapping = tmp_path / "map.toml"
    mapping.write_text('[[group]]\ndesc = "TENSOR_MODEL_PARALLEL_GROUP"\naxes = "ep"\nstrategy = "ep"\n')
    table = tk.analyze(SAMPLE / "rank0.json.gz", group_map=mapping).arrow("collectives")
    rows = [r for r in table.to_pylist() if r["group_desc"] == "TENSOR_MODEL_PARALLEL_GROUP"]
    assert {(r["strategy"], r["axes"], r["rule"]) for r in rows} == {("ep", "ep", "layout.map")}


def test_run_toml_declares_layout_and_groups(tmp_path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("[layout]\ntp = 2\ndp = 2\npp = 2\norder = 'tp-dp-pp'\n[model]\nname = 'x'\n")
    document = tk.analyze(SAMPLE, config=config, workers=1, detail=False).document
    assert document["layout"]["declared"]["degrees"] == {"tp": 2, "dp": 2, "pp": 2}


def test_a_contradicting_layout_is_a_finding_and_descriptions_stay(tmp_path, whole) -> None:
    result = tk.analyze(SAMPLE, layout="tp=8", workers=1)
    assert any(f["code"] == "layout-contradiction" for f in result.document["findings"])
    rows = result.arrow("collectives").to_pylist()
    mine = [r for r in rows if r["group_desc"] == "TENSOR_MODEL_PARALLEL_GROUP" and r["strategy"] != "housekeeping"]
    assert {r["strategy"] for r in mine} <= {"tp", "sp"}
    assert all(r["confidence"] <= 0.6 for r in mine if r["rule"].startswith("axes."))
