"""Patterns of rules are compiled only for texts that hold the words every match holds."""

from __future__ import annotations

import random
import re
import warnings
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.label.matching import When
from tracekit.label.rules import load_rules
from tracekit.label.schema import LazyPattern, words_of


@cache
def shipped() -> list[str]:
    """Every pattern of the shipped label rules."""
    whens = [r.when for r in load_rules().labels]
    found = {getattr(w, f) for w in whens for f in When.__struct_fields__}
    return sorted(p.pattern for p in found if isinstance(p, LazyPattern))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_match_of_a_shipped_pattern_is_passed_over(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(shipped()))
    text = data.draw(st.from_regex(re.compile(pattern)))
    assert LazyPattern(pattern).search(text) is not None


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("gather", ("gather",)),
        ("^all_gather|reduce", ("all_gather", "reduce")),
        ("(?i)Gather", ("gather",)),
        (r"torch/optim/\w+\.py\(\d+\): step", ("torch/optim/",)),
        ("gathers?$", ("gather",)),
        ("ab+c", ("ab",)),
        ("ab{2}c*", ("a",)),
        (r"a\.b\d", ("a.b",)),
        ("[ab]x[]c]yy", ("yy",)),
        ("a(b|c)dd", ("dd",)),
        ("(a|b)c?", ()),
        ("abc|x*", ()),
        (r"\d+|abc", ()),
        ("(?x) a b c", ()),
        ("(?s)abc", ()),
        ("(?P<n>x)(?(n)abc|def)", ()),
        ("", ()),
        (r"\x41bc", ()),
        (r"\u0041bc|\U00000041bc", ()),
        (r"\N{LATIN SMALL LETTER A}bc", ()),
        (r"(a)\1bc", ()),
        (r"\101bc", ()),
    ],
)
def test_words_that_every_match_holds(pattern: str, words: tuple[str, ...]) -> None:
    assert words_of(pattern) == words


@pytest.mark.parametrize("seed", range(20))
def test_no_match_of_any_pattern_is_passed_over(seed: int) -> None:
    rng = random.Random(seed)
    tokens = [
        *"abAB(|)?*+.^$",
        "[ab]",
        "[^a]",
        "{2}",
        "{0,1}",
        "{0}",
        r"\d",
        r"\b",
        r"\.",
        "(?:",
        "(?i:",
        "(?!",
        "(?=",
        r"\x61",
        r"\1",
    ]
    tried = 0
    while tried < 100:
        pattern = rng.choice(("", "(?i)")) + "".join(rng.choices(tokens, k=rng.randint(1, 9)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                whole = re.compile(pattern)
        except (re.error, FutureWarning, DeprecationWarning):
            continue
        tried += 1
        for _ in range(20):
            text = "".join(rng.choices("abAB1.", k=rng.randint(0, 6)))
            if whole.search(text):
                assert LazyPattern(pattern).search(text) is not None, (pattern, text)


def test_an_unknown_text_compiles_nothing() -> None:
    lazy = LazyPattern("all_gather(_into_tensor)?$|ALL_reduce")
    assert lazy.search("aten::mm") is None
    assert lazy._compiled is None
    assert lazy.search("c10d::all_gather") is not None
    assert lazy.match("ALL_reduce") is not None
    assert lazy.fullmatch("all_reduce") is None
