"""The generator, its gate, and reading back."""

import hashlib
import os
import subprocess
import sys

import pytest

from thrifty.evaluation.reasoning import Lexicon, bundles, faults, generate, read_problem, read_problems, write_problems
from thrifty.evaluation.reasoning.problems.lexicon import Topic
from thrifty.evaluation.reasoning.problems.problem import AMOUNTS, CELLS, CONNECTIONS, OVERLAPS, Cell
from thrifty.evaluation.reasoning.problems.templates import templates


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


def test_a_contradiction_is_found_by_the_gate():
    problem = read_problem("Ada has 3 figs. Bo has 2 figs more than Ada. Bo has 9 figs. How many figs does Bo have?")
    assert "two values" in faults(problem)[0]


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
