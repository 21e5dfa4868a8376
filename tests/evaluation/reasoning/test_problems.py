"""The generator, its gate, and reading back."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thrifty.evaluation.reasoning import (
    Lexicon,
    Program,
    bundles,
    execute,
    faults,
    generate,
    read_official,
    read_problem,
    read_problems,
    write_problems,
)
from thrifty.evaluation.reasoning.logic import theorems
from thrifty.evaluation.reasoning.problems import wording
from thrifty.evaluation.reasoning.problems.chains import control
from thrifty.evaluation.reasoning.problems.gate import shortfalls
from thrifty.evaluation.reasoning.problems.lexicon import Topic
from thrifty.evaluation.reasoning.problems.problem import AMOUNTS, CELLS, CONNECTIONS, OVERLAPS, Cell
from thrifty.evaluation.reasoning.problems.reading import TextClock, read_statement
from thrifty.evaluation.reasoning.problems.templates import templates
from thrifty.evaluation.reasoning.problems.trees import BASE, base_tree, draw_quantities


@pytest.fixture(scope="module")
def made():
    return list(bundles(4, 21))


def test_every_problem_passes_the_gate_and_says_what_its_cell_says(made):
    for bundle in made:
        assert set(bundle.problems) == set(CELLS)
        for cell, problem in bundle.problems.items():
            assert faults(problem) == []
            drawn = [s for s in problem.sentences if s.source.startswith("irrelevant")]
            assert bool(drawn) == (cell.overlap in OVERLAPS)
            used = {s.text for s in drawn} & {problem.axiom_texts[node] for node in problem.relevant}
            assert not used


def test_overlaps_differ_in_names_only(made):
    for bundle in made:
        for connection in CONNECTIONS:
            for amount in AMOUNTS:
                four = [bundle.problems[Cell(connection, amount, overlap)] for overlap in OVERLAPS]
                assert len({tuple(s.source for s in p.sentences) for p in four}) == 1
                assert len({tuple(abs(s.theorem.value) for s in p.sentences) for p in four}) == 1
                assert len({p.answer for p in four}) == 1
                assert {len(p.sentences) for p in four} == {
                    len(bundle.problems[Cell("none", amount, "control")].sentences)
                }


def test_a_connected_distractor_follows_from_the_base_and_gives_more_theorems(made):
    for bundle in made:
        for amount in AMOUNTS:
            near = bundle.problems[Cell("connected", amount, "no_overlap")]
            far = bundle.problems[Cell("disconnected", amount, "no_overlap")]
            assert len(near.eager) > len(far.eager) >= near.shortest.length


def test_quantities_stay_within_their_ranges(made):
    for bundle in made:
        for problem in bundle.problems.values():
            for sentence in problem.sentences:
                most = 99 if sentence.source.startswith("irrelevant") else 20
                if sentence.theorem.predicate != "compeq":
                    assert 2 <= abs(sentence.theorem.value) <= most, sentence
            assert all(2 <= node.value <= 10_000 for node in problem.graph.nodes if node.key[0] in ("cont", "total"))


def test_nobody_is_compared_with_themselves(made):
    for bundle in made:
        for problem in bundle.problems.values():
            for theorem in (s.theorem for s in problem.sentences if s.theorem.predicate == "comp"):
                assert theorem.key[1][0] != theorem.key[2][0]


def test_what_is_connected_is_told_after_what_it_hangs_on(made):
    for bundle in made:
        for amount in AMOUNTS:
            problem = bundle.problems[Cell("connected", amount, "no_overlap")]
            known = set()
            for at, sentence in enumerate(problem.sentences):
                if sentence.source.startswith("irrelevant"):
                    so_far = Program(tuple(s.theorem for s in problem.sentences[: at + 1]))
                    known = {node.key for node in execute(so_far).nodes}
                    if sentence.theorem.predicate == "comp":
                        assert set(sentence.theorem.key[1:]) & {k[1:] for k in known if k[0] == "cont"}


def test_a_control_uses_the_rules_that_it_is_asked_for():
    rng = np.random.default_rng(0)
    for _ in range(20):
        root, names = base_tree(rng, 2, total=True)
        draw_quantities(root, rng, BASE)
        longer, more = control(root, names, rng, 4, ("transfer", "transfer", "comp"), BASE)
        grown = Counter(n.rule for n in longer.walk()) - Counter(n.rule for n in root.walk())
        assert grown["transfer"] >= 2
        assert grown["comp"] >= 1
        assert sum(grown[rule] for rule in ("transfer", "comp")) == 4
        assert len(longer.leaves()) == len(root.leaves()) + 4
        assert longer.value == root.value
        assert more.agents == names.agents + 4


def test_problems_of_the_published_code_are_read(tmp_path):
    def sentence(text, source="base"):
        return {"text": text, "type": "statement", "source": source, "relevant": source == "base", "lf": "Container"}

    body = [
        sentence("Zelda has 3 plums."),
        sentence(" Zelda’s hairdresser has 2 plums fewer than Zelda.", "irrelevant_0"),
    ]
    asked = {"text": " How many plums does Zelda have?"}
    ground = {"text": "Prove that Zelda has 3 plums."}
    variant = {"problembody": body, "question": asked, "groundquery": ground, "answer": 3}
    base = {**variant, "problembody": body[:1]}
    record = {"base": base, "connected": {"simple": {"entity_overlap": variant, "control": base}}}
    path = tmp_path / "official.jsonl"
    path.write_text(json.dumps(record) + "\n" + json.dumps(record) + "\n")
    found = list(read_official(path))
    assert [str(problem.cell) for problem in found[:3]] == [
        "base",
        "connected/simple/entity_overlap",
        "none/simple/control",
    ]
    assert len(found) == 6
    assert found[1].sentences[1].source == "irrelevant_0"
    assert [problem.answer for problem in found] == [3] * 6
    assert next(read_official(path, query="prove")).query == "prove"
    path.write_text(json.dumps({"base": {"question": asked}}))
    with pytest.raises(ValueError, match="expected the fields problembody and question"):
        list(read_official(path))


def test_a_control_is_proven_by_the_rules_of_the_distractors_that_it_stands_for():
    cells = Cell(), Cell("none", "complex", "control"), Cell("disconnected", "complex", "no_overlap")
    for bundle in bundles(12, 22, cells=cells):
        base, control_, far = (bundle.problems[cell] for cell in cells)
        more = rules(control_, control_.eager) - rules(base, base.eager)
        assert not (rules(far, far.eager) - rules(base, base.eager)) - more


def rules(problem, edges):
    return Counter(problem.graph.edges[number].rule for number in edges)


def test_the_gate_finds_what_is_wrong():
    told = "Ada has 3 figs. Bo has 2 figs more than Ada. "
    asked = "How many figs does Bo have?"
    problem = read_problem(told + asked)
    assert faults(problem) == []
    assert "two values" in faults(read_problem(f"{told}Bo has 9 figs. {asked}"))[0]
    assert "does not follow" in faults(read_problem(f"{told}How many figs does Cy have?"))[0]
    several = read_problem(f"{told}Cy has 4 figs. Bo has 1 fig more than Cy. {asked}")
    assert faults(several) == ["there are several shortest proofs"]
    assert faults(read_problem(f"{told}Ada has 3 figs. {asked}")) == ["two sentences say the same"]
    first, second = problem.sentences
    drawn = replace(problem, sentences=(first, second._replace(source="irrelevant_1")))
    assert faults(drawn) == ["the shortest proof uses a sentence that was to be irrelevant"]
    reworded = replace(problem, sentences=(first._replace(text="Ada has 4 figs."), second))
    assert faults(reworded) == ["the text reads back as another program"]
    assert faults(replace(problem, sentences=(first._replace(text="Ada sings."), second)))
    assert shortfalls(problem, 1, 5) == []
    assert "made to have 2" in shortfalls(problem, 2)[0]
    assert "made to be 6" in shortfalls(problem, 1, 6)[0]


def test_every_template_has_one_reading():
    words = Lexicon.default()
    values = {
        "agent": "Ada’s boss", "other": "Bo", "third": "Cy", "fourth": "Di’s uncle", "receiver": "Ada", "sender": "Bo’s coach",  # noqa: E501
        "q": "12", "entity": "guinea pigs", "other entity": "drums", "part entity": "pens", "whole entity": "box",
        "agents": "Ada, Bo’s boss and Cy", "whole": "music instruments", "sum": "3 + 4 + 5",
    }  # fmt: skip
    for form, several in templates().items():
        for template in several:
            found = words.reader.all(template.fill(values))
            assert [read.form for read in found] == [form]
            assert found[0].slots == {slot: values[slot].replace("’", "'") for slot in template.slots}


def test_a_record_is_read_as_it_was_written(tmp_path, made):
    problems = [problem for bundle in made for problem in bundle.problems.values()]
    path = write_problems(problems, tmp_path / "p.jsonl")
    assert read_problems(path) == problems
    with pytest.raises(FileExistsError):
        write_problems(problems, path)


WORDS = Lexicon.default()
AGENTS = st.builds(
    lambda name, relations: "".join([name, *(f"’s {relation}" for relation in relations)]),
    st.sampled_from(WORDS.names),
    st.lists(st.sampled_from(WORDS.relations), max_size=2),
)
THINGS = st.sampled_from([noun[0] for topic in WORDS.topics for noun in topic.parts] + [n[0] for n in WORDS.plain])
NUMBERS = st.integers(0, 12_000)


@st.composite
def told(draw, agents=AGENTS, things=THINGS):
    """A statement about containers at time 0, with how it is to be worded."""
    a, b, c, d = draw(st.lists(agents, min_size=4, max_size=4, unique=True))
    thing, other = draw(st.lists(things, min_size=2, max_size=2, unique=True))
    number, side = draw(NUMBERS), draw(st.sampled_from(["receiver", "sender"]))
    first, second = (a, thing, 0), (b, draw(st.sampled_from([thing, other])), 0)
    third, fourth = (c, thing, 0), (d, thing, 0)
    theorem = draw(
        st.sampled_from(
            [
                theorems.cont(a, thing, number),
                theorems.comp(first, second, draw(st.sampled_from([number, -number]))),
                theorems.times(first, second, number + 1),
                theorems.transfer(first, (b, thing, 0), number),
                theorems.transfer(first, None, number)
                if side == "receiver"
                else theorems.transfer(None, first, number),
                theorems.rate(a, thing, other, number),
                theorems.compeq(first, (b, thing, 0), third, fourth),
            ]
        )
    )
    subject = draw(st.sampled_from(theorem.key[1:])) if theorem.predicate == "comp" else None
    return wording.statement(theorem, WORDS, draw(st.floats(0, 0.999)), subject=subject, side=side), theorem


@settings(max_examples=80, deadline=None)
@given(told())
def test_every_statement_reads_back_as_what_was_said(pair):
    text, theorem = pair
    assert len(WORDS.reader.all(text)) == 1, text
    assert read_statement(text, WORDS.reader, TextClock()) == theorem
    assert read_statement(text.replace("’", "'"), WORDS.reader, TextClock()) == theorem


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        told(st.sampled_from(["Ada", "Ada’s boss", "Bo", "Cy"]), st.sampled_from(["drum", "guinea pig"])), max_size=8
    )
)
def test_a_text_reads_back_with_the_times_at_which_its_statements_stand(several):
    clock, passed = TextClock(), {}
    for text, theorem in several:

        def now(part, passed=passed):
            if isinstance(part, tuple) and len(part) == 3 and isinstance(part[2], int):
                return (part[0], part[1], passed.get(part[:2], 0))
            return part

        if theorem.predicate == "cont":
            expected = (*theorem.key[:3], passed.get(theorem.key[1:3], 0))
        else:
            expected = (theorem.key[0], *map(now, theorem.key[1:]))
            if theorem.predicate == "comp":  # the two stand in sorted order, times included
                assert set(read_statement(text, WORDS.reader, clock).key) == set(expected)
                continue
        assert read_statement(text, WORDS.reader, clock).key == expected
        if theorem.predicate == "transfer":
            for place in filter(None, theorem.key[1:]):
                passed[place[:2]] = passed.get(place[:2], 0) + 1


def test_a_seed_gives_the_same_bytes_in_every_process():
    code = (
        "import json, hashlib; from thrifty.evaluation.reasoning import generate;"
        "made = generate(2, 5, 'connected', 'complex', 'agent_overlap', 'prove');"
        "print(hashlib.sha256(json.dumps([p.to_record() for p in made]).encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
    assert len(seen.pop().strip()) == len(hashlib.sha256().hexdigest())


def test_bad_words_are_refused():
    nouns = (("drum", "drums"), ("flute", "flutes"), ("harp", "harps"))
    topic = Topic(("instrument", "instruments"), ("case", "cases"), nouns)
    other = Topic(("noise", "noises"), ("bag", "bags"), nouns)
    with pytest.raises(ValueError, match=r"two wholes|cannot be told"):
        Lexicon(("Ada",), ("boss",), (topic, other), ())
    with pytest.raises(ValueError, match="names: expected different"):
        Lexicon(("Ada", "Ada"), ("boss",), (topic,), ())
    with pytest.raises(ValueError, match="lexicon: names"):
        generate(1, lexicon=Lexicon(("Ann", "Anna"), ("boss",), (topic,), (("map", "maps"),)), depth=(2,))
    with pytest.raises(ValueError, match="connection, amount, overlap: expected"):
        generate(1, 0, "loosely", "simple", "no_overlap")
    with pytest.raises(ValueError, match="expected a sentence of the grammar"):
        read_problem("Ada sings. How many figs does Ada have?")
