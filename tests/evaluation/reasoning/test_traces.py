"""Alignment, labels and scores on traces whose worth is known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thrifty.evaluation.reasoning import align, generate, read_problem, score, wilson
from thrifty.evaluation.reasoning.metrics import lcs_length, levenshtein
from thrifty.evaluation.reasoning.traces.text import answer_of

FIGS = "Mina has 16 figs. Ode has 5 figs less than Mina. Mina’s boss has 3 figs less than Ode. "
DRUMS = (
    "Ivo has 14 drums. Ivo has 6 drums fewer than Pia. Rolf owns 9 flutes. Rolf then gets 5 more flutes from Uma. "
    "Pia’s boss has 30 drums. Pia’s boss has 8 drums more than Rolf’s uncle. "
    "If Pia and Rolf sum up the music instruments that they have, how many music instruments do they have in total?"
)


def labels(problem, text, **options):
    return [step.label for step in align(problem, text, **options).steps]


def test_the_worked_example():
    problem = read_problem(FIGS + "How many figs does Ode have?")
    found = score(problem, "Ode has 16 - 5 = 11 figs. So Mina's boss has 11 - 3 = 8 figs. The answer is 11.")
    assert (found.efficiency, found.precision, found.recall) == (0.5, 0.5, 1.0)
    steps = align(problem, "Ode has 16 - 5 = 11 figs. So Mina's boss has 11 - 3 = 8 figs.").steps
    assert [step.relevant for step in steps] == [True, False]
    assert read_problem(FIGS + "How many figs does Mina’s boss have?").shortest.length == 2


def test_the_worked_bundle():
    problem = read_problem(DRUMS)
    assert problem.shortest.length == 3
    eager = score(problem, problem.eager_trace)
    assert (eager.efficiency, eager.precision, eager.recall) == (0.75, 0.75, 1.0)
    skipping = score(problem, "20 + 14 = 34")
    assert (skipping.efficiency, skipping.skipped, skipping.coverage, skipping.efficiency_stated) == (1.0, 2, 1.0, 1.0)


def test_steps_are_labelled():
    problem = read_problem(DRUMS)
    assert labels(problem, "Pia’s boss has 20 drums.") == ["invalid"]
    assert labels(problem, "Pia’s stranger’s doctor has 14 + 6 = 20 drums.") == ["invalid"]
    wrong = "Pia has 14 + 6 = 21 drums."
    assert labels(problem, wrong) == ["arith_error"]
    assert labels(problem, f"{wrong} Pia has 14 + 6 = 20 drums.") == ["self_correction", "inference"]
    assert labels(problem, "Pia has 6 + 14 = 20 drums. So Pia has 20 drums.") == ["inference", "restatement"]
    assert labels(problem, "Ivo has 14 drums. Well now.") == ["axiom_restated", "other"]
    assert labels(problem, r"1. \(14 + 6 = 20\)") == ["inference"]
    assert labels(problem, "Pia has 14 drums + 6 drums = 20 drums and Rolf has 9 + 5 = 14 flutes.") == ["inference"] * 2


def test_the_published_rule_takes_a_relative_for_the_person_and_ours_does_not():
    problem = read_problem(DRUMS)
    text = "1. So Pia’s boss has 14 + 6 = 20 drums."
    assert labels(problem, text, aligner="official") == ["inference"]
    assert labels(problem, text) == ["invalid"]


@pytest.mark.parametrize("query", ["question", "prove"])
def test_written_proofs_score_exactly(query):
    for problem in generate(4, 31, "connected", "more_complex", "agent_overlap", query):
        gold, eager = score(problem, problem.gold_trace), score(problem, problem.eager_trace)
        assert gold.efficiency == gold.precision == gold.recall == 1
        assert gold.exact
        assert gold.correct
        assert eager.efficiency == problem.shortest.length / len(problem.eager)
        assert eager.lev_dfs == 0
        wordy = "Let me think.\n" + problem.eager_trace.replace("So ", "This means that ")
        assert score(problem, wordy).efficiency == eager.efficiency


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 1,234.", 1234), (r"\boxed{1{,}000}", 1000), ("#### -7", -7), ("answer (arabic numerals) is $5.", 5),  # noqa: E501
        ("The answer is twenty-one drums", 21), ("2 or 3. The answer is 4.\n\nQ: next 9", 4), ("so 12 in all", 12),
        ("so 12 in all\nQ: and 13?", 12),
        ("The answer is 20.5", None), ("", None), ("Je ne sais pas", None), ("The answer is 3. Wait, the answer is 8.", 8),  # noqa: E501
    ],
)  # fmt: skip
def test_answers_are_read(text, answer):
    assert answer_of(text) == answer


def test_nothing_written_or_cut_off_is_wrong_and_never_a_crash():
    problem = read_problem(DRUMS)
    for text in ("", "Пиа имеет много барабанов.", "<think>hm"):
        found = score(problem, text)
        assert math.isnan(found.efficiency)
        assert (found.correct, found.coverage) == (False, 0.0)
    cut = score(problem, problem.gold_trace, finish_reason="length")
    assert (cut.correct, cut.flagged) == (False, True)
    assert math.isnan(cut.efficiency)


def test_a_complete_proof_of_a_wrong_answer_has_no_efficiency():
    problem = read_problem(DRUMS)
    wrong = score(problem, problem.gold_trace.replace("numerals) is 34", "numerals) is 35"))
    assert (wrong.correct, wrong.complete, wrong.precision, wrong.recall) == (False, False, 1.0, 1.0)
    assert math.isnan(wrong.efficiency)
    half = score(problem, "Pia has 14 + 6 = 20 drums. The answer is 34.")
    assert (half.correct, half.complete, half.precision) == (True, False, 1.0)
    assert half.recall == pytest.approx(1 / 3)
    assert math.isnan(half.efficiency)


def test_after_the_goal_nothing_counts_where_that_is_asked_for():
    problem = read_problem(FIGS + "How many figs does Ode have?")
    text = "Ode has 16 - 5 = 11 figs. So Mina's boss has 11 - 3 = 8 figs. The answer is 11."
    assert score(problem, text).efficiency == 0.5
    assert score(problem, text, until_goal=True).efficiency == 1


def test_what_cannot_be_matched_is_flagged():
    problem = read_problem(DRUMS)
    found = score(problem, "Pia has 14 + 6 = 20 drums. 3 + 4 = 7. 1 + 1 = 2.")
    assert (found.coverage, found.flagged) == (pytest.approx(1 / 3), True)
    assert not score(problem, problem.gold_trace).flagged


def test_a_skip_says_what_it_leaves_out():
    problem = read_problem(DRUMS)
    (step,) = align(problem, "20 + 14 = 34").steps
    assert step.label == "skip"
    assert {problem.graph.nodes[node].key[1] for node in step.omitted} == {"Pia", "Rolf"}
    (later,) = (s for s in align(problem, "Pia has 14 + 6 = 20 drums. 20 + 14 = 34").steps if s.label == "skip")
    assert [problem.graph.nodes[node].key[1] for node in later.omitted] == ["Rolf"]


def test_the_nearest_of_several_shortest_proofs_counts():
    told = "Ada has 3 figs. Cy has 4 figs. Bo has 2 figs more than Ada. Bo has 1 fig more than Cy. "
    told += "Dan has 1 fig more than Bo. "
    problem = read_problem(told + "How many figs does Dan have?")
    for first in ("Bo has 3 + 2 = 5 figs.", "Bo has 4 + 1 = 5 figs."):
        found = score(problem, f"{first} Dan has 5 + 1 = 6 figs. The answer is 6.")
        assert (found.efficiency, found.precision, found.recall) == (1, 1, 1)


def test_the_published_rule_as_it_is_published():
    problem = read_problem(DRUMS)
    assert labels(problem, "Pia has 14 + 6 = 20 drums.", aligner="official") == []  # no number, no step
    assert labels(problem, "1. Pia has 14 + 6 = 20 drums.\n2. Nothing.", aligner="official") == ["inference", "other"]
    assert labels(problem, "1. Pia has 26 - 7 + 1 = 20 drums.", aligner="official") == ["inference"]  # another sum
    assert labels(problem, "1. Pia has 10 + 10 = 21 drums.", aligner="official") == ["other"]
    assert labels(problem, "1. Pia has 81 / 4 = 20 drums.", aligner="official") == ["inference"]  # whole division
    assert labels(problem, "1. Pia has 10 * 2 = 20 drums.", aligner="official") == ["inference"]
    assert labels(problem, "1. Pia has 1,020 - 1,000 = 20 drums.", aligner="official") == ["other"]
    assert labels(problem, "1. Pia has 14 + 6 = 20 drums.\n2. Pia has 14 + 6 = 20 drums.", aligner="official") == [
        "inference", "restatement",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"Pia has \(14 + 6 = 20\) drums.", "inference"), ("Pia has 14 + 6 = **20** drums.", "inference"),
        ("So Pia has 14 drums plus 6 drums, 14 + 6 = 20.", "inference"), ("14+6=20", "inference"),
        (r"\[14 + 6 = \boxed{20}\]", "inference"), ("Pia: 6 + 14 = 20", "inference"),
        ("Pia's landlady has 14 + 6 = 20 drums.", "invalid"), ("Pia has 13 + 7 = 20 drums.", "invalid"),
        ("Pia has 20 drums.", "inference"), ("Pia’s drums are 14 + 6 = 20.", "inference"),
        ("Rolf has 14 flutes.", "inference"), ("Rolf has 9 flutes.", "axiom_restated"),
        ("Rolf has 14 drums.", "invalid"), ("Rolf's uncle has 30 - 8 = 22 drums.", "inference"),
        ("Let me think about drums.", "other"), ("Pia has 14 − 6 = 8 drums.", "arith_error"),
    ],
)  # fmt: skip
def test_ways_of_writing_a_step(text, found):
    assert labels(read_problem(DRUMS), text) == [found]


def test_names_that_begin_alike_and_things_of_several_words():
    told = "Ann has 4 toy cars. Anna has 3 toy cars more than Ann. James owns 2 toys. James’s boss has 5 toys more than James. "  # noqa: E501
    problem = read_problem(told + "How many toy cars does Anna have?")
    assert labels(problem, "Anna has 4 + 3 = 7 toy cars.") == ["inference"]
    assert labels(problem, "Ann has 4 + 3 = 7 toy cars.") == ["invalid"]
    assert labels(problem, "James's boss has 2 + 5 = 7 toys.") == ["inference"]
    assert labels(problem, "James's boss has 2 + 5 = 7 toy cars.") == ["invalid"]


def test_thinking_counts_where_it_is_asked_to():
    problem = read_problem(DRUMS)
    text = f"<think>{problem.eager_trace}</think>\n{problem.gold_trace}"
    assert score(problem, text, trace="visible").efficiency == 1
    assert score(problem, text, trace="both").efficiency == 0.75


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="0123456789+-*/= .\nPiaRolf drums’s$\\{}", max_size=120))
def test_scores_stay_within_their_bounds(text):
    found = score(read_problem(DRUMS), text)
    for name in (
        "efficiency",
        "precision",
        "recall",
        "precision_all",
        "recall_all",
        "lev_dfs",
        "lev_efficient",
        "coverage",
    ):
        value = getattr(found, name)
        assert math.isnan(value) or 0 <= value <= 1, name


def test_orders_are_compared_item_by_item():
    assert levenshtein([3, 5, 9], [3, 9]) == pytest.approx(1 / 3)
    assert lcs_length([3, 5, 9], [3, 9]) == 2
    assert lcs_length([11], [1, 1]) == 0


def test_wilson_as_in_the_notebooks():
    assert [round(end, 5) for end in wilson(325, 500)] == [0.60619, 0.69152]
    assert wilson(0, 500).low == 0
    assert wilson(500, 500).high == 1
