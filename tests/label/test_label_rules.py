"""Rule files: the built-in ones load, mistakes name file, rule and field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from label_builder import TraceBuilder

from tracekit.errors import RuleError
from tracekit.label import label_rank, load_rules, schema
from tracekit.label.references import Words
from tracekit.label.steps import find_steps
from tracekit.model import Kind

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "[[rule]]\nid = 'r'\nwhen = { op = 'x' }\nthen = { axes = 'tp' }\n"
RULE = '[[rule]]\nid = "r"\ntier = "A"\nconfidence = 0.9\n'


def test_the_built_in_rules_load_and_every_conclusion_is_in_the_vocabulary():
    rules = load_rules()
    assert len(rules.labels) > 80
    facts = {f.id for f in rules.facts}
    used = {f for r in rules.labels for f in (*r.when.fact, *r.when.no_fact)}
    assert used == facts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[[kernel", ["not a TOML file"]),
        ("[[kernels]]\n", ["kernels", "no such table"]),
        ("[[dtype]]\nname = 'x'\nbytes = -4\n", ["'x'", "'bytes'", "not negative"]),
        ("[kernel]\nid = 'x'\n", ["[[kernel]]", "once for each entry"]),
        ("[[kernel]]\nid = 'x'\nkind = 'comm'\nbase = 'a'\n", ["'x'", "'family'", "required"]),
        ("[[kernel]]\nid = 'x'\nkind = 'magic'\nbase = 'a'\n", ["'x'", "'kind'", "compute, comm, fused"]),
        ("[[kernel]]\nid = 'x'\nkind = 'compute'\n", ["'x'", "'base'"]),
        ("[[kernel]]\nid = 'x'\nkind = 'compute'\nbase = '('\n", ["'x'", "'base'", "not a regular expression"]),
        ("[[kernel]]\nid = 'x'\nkind = 'compute'\nbase = 3\n", ["'x'", "'base'", "regular expression"]),
        ("[[kernel]]\nkind = 'compute'\nbase = 'a'\n", ["'#1'", "'id'", "required"]),
        ("[[step]]\nid = 's'\npattern = 'x'\nnumber = 3\n", ["'s'", "'number'", "no such field"]),
        ("[[step]]\nid = 's'\npattern = 'x'\n[[step]]\nid = 's'\npattern = 'y'\n", ["'s'", "used twice"]),
        (RULE + "when = {}\nthen = { strategy = 'tp' }\n", ["'r'", "'when'", "every call"]),
        (RULE + "when = { op = 'x' }\nthen = {}\n", ["'r'", "'then'"]),
        (RULE + "when = { op = 'x' }\nthen = { strategy = 'magic' }\n", ["'r'", "then.strategy", "magic"]),
        (RULE + "when = { op = 'x' }\nthen = { colour = 'red' }\n", ["'r'", "then.colour", "strategy, axes"]),
        (RULE + "when = { stream = 'x' }\nthen = { strategy = 'tp' }\n", ["'r'", "when.stream", "no such field"]),
        (RULE + "when = { size = { max_elements = 'x' } }\nthen = { strategy = 'tp' }\n",
         ["when.size.max_elements", "whole number"]),
        (HEAD + "tier = 'E'\nconfidence = 0.9\n", ["'tier'", "A, B, C, D"]),
        (HEAD + "tier = 'A'\nconfidence = 90\n", ["'confidence'", "0 to 1"]),
        ("[[fact]]\nid = 'f'\n", ["'f'", "'present'"]),
    ],
)  # fmt: skip
def test_a_mistake_names_file_rule_and_field(tmp_path: Path, text: str, parts: list[str]):
    path = tmp_path / "my rules.toml"
    path.write_text(text)
    with pytest.raises(RuleError) as error:
        load_rules([path])
    for part in (str(path), *parts):
        assert part in str(error.value)


def test_a_missing_file_is_a_rule_error(tmp_path: Path):
    with pytest.raises(RuleError, match=r"absent\.toml"):
        load_rules([tmp_path / "absent.toml"])


def test_a_bad_step_pattern_is_a_rule_error():
    with pytest.raises(RuleError, match="--step-pattern"):
        load_rules(step_pattern="step(")


def test_user_kernel_rules_come_first(tmp_path: Path):
    path = tmp_path / "k.toml"
    path.write_text("[[kernel]]\nid = 'mine'\nkind = 'comm'\nfamily = 'home'\nbase = '^gemm$'\n")
    out = label_rank(TraceBuilder().kernel(0, 5, "void gemm(int)").build(), load_rules([path]))
    assert out.activities.kind.tolist() == [Kind.COMM]
    assert out.calls[0].family == "home"


def test_a_rule_with_a_known_id_replaces_the_built_in_one(tmp_path: Path):
    path = tmp_path / "s.toml"
    path.write_text("[[step]]\nid = 'torch.profiler'\npattern = 'Never#(?P<step>[0-9]+)'\n")
    trace = TraceBuilder().note(0, 5, "ProfilerStep#1").build()
    assert find_steps(trace, load_rules([path]).steps).markers == []


@pytest.mark.parametrize(
    ("names", "steps", "rule", "phases"),
    [
        (["ProfilerStep#7", "ProfilerStep#8"], [7, 8], "torch.profiler", [None, None]),
        (["execute_context_2(40)_generation_0(0)", "execute_context_0(0)_generation_8(8)",
          "execute_context_1(9)_generation_3(3)"],
         [0, 1, 2], None, ["prefill", "decode", None]),
        (["execute_context_1(sq3_sk9_sqsq9_sqsk27)_generation_0(sq0_sk0_sqsq0_sqsk0)"],
         [0], "vllm.prefill", ["prefill"]),
        (["step[EXTEND bs=1 toks=128]", "step[DECODE bs=4]", "step[VERIFY bs=2]"],
         [0, 1, 2], None, ["prefill", "decode", "verify"]),
        (["[Executor] _forward_step 12: 3 ctx reqs, 4 gen reqs"], [12], "trtllm", [None]),
        (["train_step 31"], [31], "torchtitan", [None]),
        (["iteration 5"], [5], "iteration", [None]),
        (["forward", "Optimizer.step#SGD.step", "aten::step"], [], None, []),
    ],
)  # fmt: skip
def test_step_grammars(names, steps, rule, phases):
    b = TraceBuilder()
    for i, name in enumerate(names):
        b.note(100 * i, 90, name)
    found = find_steps(b.build(), load_rules().steps).markers
    assert [m.step for m in found] == steps
    assert [m.phase for m in found] == phases
    assert rule is None or {m.found_by for m in found} == {rule}


def test_profiler_steps_are_preferred_and_nested_markers_do_not_count():
    b = TraceBuilder().note(0, 100, "ProfilerStep#3").note(5, 20, "iteration 1").note(10, 30, "ProfilerStep#3")
    assert [(m.step, m.start, m.end) for m in find_steps(b.build(), load_rules().steps).markers] == [(3, 0, 100_000)]


def test_a_user_pattern_wins_over_every_grammar():
    b = TraceBuilder().note(0, 100, "ProfilerStep#3").note(5, 20, "round-41").note(30, 20, "round-42")
    found = find_steps(b.build(), load_rules(step_pattern=r"round-(?P<step>\d+)").steps).markers
    assert [(m.step, m.found_by) for m in found] == [(41, "user"), (42, "user")]


def test_a_step_grammar_of_a_user_file_wins_too(tmp_path: Path):
    path = tmp_path / "s.toml"
    path.write_text("[[step]]\nid = 'rounds'\npattern = 'round-(?P<step>[0-9]+)'\n")
    b = TraceBuilder().note(0, 100, "ProfilerStep#3").note(5, 20, "round-41")
    assert [m.step for m in find_steps(b.build(), load_rules([path]).steps).markers] == [41]


def test_look_alikes_are_listed():
    b = TraceBuilder().note(0, 10, "my step 1!").note(20, 10, "my step 2!").note(40, 5, "forward")
    out = label_rank(b.build(), load_rules())
    assert [h.example for h in out.health if "look like steps" in h.reason] == ["my step #! (2)"]


def test_every_shipped_pattern_compiles(monkeypatch):
    """Shipped patterns are compiled when they are first used, so that a mistake would show late."""
    schema._lazy.clear()
    load_rules()
    assert len(schema._lazy) > 300
    for pattern in schema._lazy.values():
        assert re.compile(pattern.pattern) is pattern.compiled


def test_the_shipped_frame_patterns_may_stand_side_by_side():
    labels = load_rules().labels
    for pattern in {p.pattern for r in labels for p in (r.when.frame, r.when.no_frame) if p is not None}:
        found = re.compile(pattern)
        assert (len(found.groupindex), found.flags) == (0, re.compile("").flags), pattern
        assert re.search(r"\\[1-9]|\(\?\(", pattern) is None, pattern


@pytest.mark.parametrize(
    ("line", "field", "word"),
    [
        ('when = { op = ["all_redcue"] }', "when.op", "all_redcue"),
        ('when = { op = ["all_reduce"], dtype = ["Flaot"] }', "when.dtype", "Flaot"),
        ('when = { fact = ["no.such"] }', "when.fact", "no.such"),
        ('when = { scope = "x", no_framework = ["megatorn"] }', "when.no_framework", "megatorn"),
        ('when = { scope = "x", axes = "pt" }', "when.axes", "pt"),
        ('when = { scope = "x", phase = ["foward"] }', "when.phase", "foward"),
        ('when = { family = ["ncll"] }', "when.family", "ncll"),
    ],
)
def test_a_word_that_exists_nowhere_is_a_mistake(tmp_path, line, field, word):
    path = tmp_path / "mine.toml"
    path.write_text(f'[[rule]]\nid = "mine"\n{line}\nthen = {{ strategy = "tp" }}\ntier = "C"\nconfidence = 0.6\n')
    with pytest.raises(RuleError, match=f"mine.*{re.escape(field)}.*{re.escape(word)}"):
        load_rules([path])


@pytest.mark.parametrize("then", ['axes = "pt"', 'axes = ""', 'phase = "foward"'])
def test_a_conclusion_that_exists_nowhere_is_a_mistake(tmp_path, then):
    path = tmp_path / "mine.toml"
    path.write_text(
        f'[[rule]]\nid = "mine"\nwhen = {{ scope = "x" }}\nthen = {{ {then} }}\ntier = "C"\nconfidence = 0.6\n'
    )
    with pytest.raises(RuleError, match="mine.*then"):
        load_rules([path])


def test_shipped_rules_refer_to_nothing_that_is_missing():
    rules = load_rules()
    Words(rules).check(rules.labels)
