"""The fast reading of the shipped rule files against `tomllib`."""

from __future__ import annotations

import tomllib

import pytest

from tracekit.label.shipped import tables_of, texts


@pytest.mark.parametrize("name", sorted(texts()))
def test_every_shipped_file_reads_as_toml_does(name: str) -> None:
    text = texts()[name]
    assert tables_of(text) == tomllib.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1_000", "a = 1979-05-27", "[table]\na = 1", "a.b = 1", "a = +1", "a = 0x1f", 'a = """x"""', "a = '''x'''",
        "[[a.b]]\nc = 1", '"a b" = 1', 'a = "\\U0001F600"', "a = inf", "a = [1, 2", "a=1", "[ [a] ]", "a = 1 2",
    ],
)  # fmt: skip
def test_what_is_more_than_the_shipped_files_use_is_left_to_tomllib(text: str) -> None:
    assert tables_of(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "# nothing", "[[rule]]", "[[rule]]\nid = 'x' # why\n[[rule]]\nid = \"y # z\"", "a = [\n  'b', # c\n  \"d\",\n]",
        "a = { b = 'c = d', e = [1, 2,] }", "a = 'back\\slash \"quoted\" ü'", "[[t]]\nin = true\n[[s]]\n[[t]]\nx = 0.5",
    ],
)  # fmt: skip
def test_what_they_use_reads_as_toml_does(text: str) -> None:
    assert tables_of(text) == tomllib.loads(text)
