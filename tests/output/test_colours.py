"""Colours can be told from the ground they stand on, and apart by readers who see fewer of them."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tracekit.output import colours

DEUTERANOPIA = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
PROTANOPIA = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
"""Machado, Oliveira, Fernandes 2009, severity 1."""


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio."""
    dark, light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB, D65."""
    m = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    xyz = m @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("ground", [colours.LIGHT, colours.DARK])
def test_every_colour_stands_out_from_both_grounds(ground: str) -> None:
    single = {n: v for n, v in vars(colours).items() if n in {"COMPUTE", "WAITING", "TRANSFER", "UNSPLIT", "HIDDEN"}}
    for name, colour in {**colours.STRATEGIES, **colours.CLASSES, **colours.ACTIONS, **single}.items():
        assert contrast(colour, ground) >= 3, (name, colour, contrast(colour, ground))


@pytest.mark.parametrize("seen", [np.eye(3), np.array(DEUTERANOPIA), np.array(PROTANOPIA)])
def test_main_strategies_stay_apart_for_all_readers(seen: np.ndarray) -> None:
    names = ("tp", "pp", "dp", "cp", "ep", "housekeeping", "zero3", "sp")
    for a, b in itertools.combinations(names, 2):
        apart = lab(seen @ linear(colours.STRATEGIES[a])) - lab(seen @ linear(colours.STRATEGIES[b]))
        assert np.linalg.norm(apart) > 10, (a, b)


def test_every_strategy_of_the_rules_has_a_colour_of_its_own() -> None:
    assert len(set(colours.STRATEGIES.values())) == len(colours.STRATEGIES)
    rules = Path(__file__).resolve().parents[2] / "rules"
    said = {
        r.get("strategy") for f in rules.glob("*.toml") for r in tomllib.loads(f.read_text("utf-8")).get("rule", [])
    }
    said |= {
        r.get("then", {}).get("strategy")
        for f in rules.glob("*.toml")
        for r in tomllib.loads(f.read_text("utf-8")).get("rule", [])
    }
    assert {"tp", "zero3"} <= said
    assert {s for s in said if s} <= set(colours.STRATEGIES) | {"zero1|zero2"}
    assert colours.strategy("zero1|zero2") == colours.STRATEGIES["zero1"]
    assert colours.strategy("</script>") == colours.STRATEGIES["unknown"]
