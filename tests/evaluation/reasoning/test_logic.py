"""Shortest proofs against brute force and clingo; programs against clingo and Prolog."""

import itertools
import random
import shutil
import subprocess

import pytest

from thrifty.evaluation.reasoning import (
    GoalNotDerivable,
    Hypergraph,
    InconsistentProgram,
    Program,
    Rule,
    bundles,
    execute,
    read_problem,
    shortest_proof,
    shortest_proofs,
)
from thrifty.evaluation.reasoning.logic.integer import fewest_edges
from thrifty.evaluation.reasoning.logic.orders import (
    best_first_order,
    breadth_first_order,
    eager_order,
    efficient_order,
    random_order,
    theorem_order,
)
from thrifty.evaluation.reasoning.logic.theorems import comp, cont


def random_graph(seed, nodes=8, edges=11):
    rng = random.Random(seed)
    made = [(rng.sample(range(nodes), rng.choice([1, 1, 2, 3])), rng.randrange(2, nodes)) for _ in range(edges)]
    made = [(tail, head) for tail, head in made if head not in tail]
    graph = Hypergraph.from_edges(made, axioms=range(2))
    able = sorted(graph.derivable() - graph.given)
    return (graph, able[-1]) if able else (None, None)


def brute_force(graph, goal):
    """The fewest edges among which an acyclic order proves the goal, and how many sets of that size do."""
    for size in range(len(graph.edges) + 1):
        found = 0
        for chosen in itertools.combinations(range(len(graph.edges)), size):
            have, growing = set(graph.axioms), True
            while growing:
                new = {graph.edges[n].head for n in chosen if have.issuperset(graph.edges[n].tail)} - have
                have |= new
                growing = bool(new)
            found += goal in have
        if found:
            return size, found
    return None


def clingo_optimum(graph, goal):
    clingo = pytest.importorskip("clingo")
    n = len(graph.nodes)
    facts = [f"axiom({a})." for a in graph.axioms] + [f"head({i},{e.head})." for i, e in enumerate(graph.edges)]
    facts += [f"tail({i},{u})." for i, e in enumerate(graph.edges) for u in set(e.tail)]
    rules = f"""{{use(E)}} :- head(E,_). have(V,0) :- axiom(V).
    have(V,D+1) :- use(E), head(E,V), D=0..{n}, have(U,D) : tail(E,U).
    have(V,D+1) :- have(V,D), D=0..{n}. :- not have({goal},{n}). #minimize{{1,E:use(E)}}."""
    control = clingo.Control(["--warn=none"])
    control.add("base", [], " ".join(facts) + rules)
    control.ground([("base", [])])
    costs = []
    control.solve(on_model=lambda model: costs.append(model.cost[0]))
    return costs[-1]


@pytest.mark.parametrize("seed", range(40))
def test_fewest_steps_and_all_of_them_as_by_brute_force(seed):
    graph, goal = random_graph(seed)
    if graph is None:
        return
    size, count = brute_force(graph, goal)
    proof = shortest_proof(graph, goal)
    assert (proof.length, proof.optimal) == (size, True)
    assert len(shortest_proofs(graph, goal)) == count
    have = set(graph.axioms)
    for number in proof.edges:
        assert have.issuperset(graph.edges[number].tail)
        have.add(graph.edges[number].head)
    assert shortest_proof(graph, goal, objective="tree").length >= size


def test_fewest_steps_as_clingo_finds_on_two_hundred_graphs():
    compared, seed = 0, 100
    while compared < 200:
        seed += 1
        graph, goal = random_graph(seed, nodes=15, edges=24)
        if graph is None:
            continue
        proof = shortest_proof(graph, goal)
        assert (proof.length, proof.optimal) == (clingo_optimum(graph, goal), True), seed
        compared += 1


def test_the_integer_programme_counts_steps_and_forbids_circles():
    long_way, short_way = [("a", "x"), ("x", "y"), ("y", "g")], [("a", "z"), ("z", "g")]
    graph = Hypergraph.from_edges(long_way + short_way, axioms="a", goal="g")
    assert fewest_edges(graph, graph.goal, range(5), 5.0, []) == [3, 4]
    assert fewest_edges(graph, graph.goal, range(5), 5.0, [frozenset({3, 4})]) == [0, 1, 2]
    circle = [("p", "q"), ("q", "p"), ("pq", "g")]
    ways_in = [("a", "x"), ("x", "p"), ("a", "y"), ("y", "z"), ("z", "q")]
    graph = Hypergraph.from_edges(circle + ways_in, axioms="a", goal="g")
    assert fewest_edges(graph, graph.goal, range(8), 5.0, []) == [0, 2, 3, 4]  # not the circle of 0, 1 and 2


def test_a_shared_lemma_counts_once_in_steps_and_each_time_in_a_tree():
    shared = [("a", "b"), ("b", "c"), ("b", "d"), ("b", "e"), ("cde", "g")]
    chain = [("a", "1"), ("1", "2"), ("2", "3"), ("3", "4"), ("4", "5"), ("5", "g")]
    graph = Hypergraph.from_edges(shared + chain, axioms="a", goal="g")
    assert shortest_proof(graph).length == 5
    assert shortest_proof(graph, objective="tree").length == 6


@pytest.fixture(scope="module")
def programs():
    """Two hundred and more problems, of every cell and both kinds of query."""
    made = [*bundles(4, 12), *bundles(4, 13, query="prove")]
    return [problem for bundle in made for problem in bundle.problems.values()]


def test_every_problem_has_the_answer_that_clingo_derives(programs):
    clingo = pytest.importorskip("clingo")
    assert len(programs) > 200
    for problem in programs:
        control = clingo.Control(["--warn=none"])
        control.add("base", [], problem.program.to_datalog())
        control.ground([("base", [])])
        shown = []
        control.solve(on_model=lambda model, shown=shown: shown.extend(map(str, model.symbols(shown=True))))
        assert shown == [f"goal({problem.answer})"]


@pytest.mark.skipif(shutil.which("swipl") is None, reason="SWI-Prolog is not installed")
def test_prolog_proves_the_same_answers(programs, tmp_path):
    files = []
    for number, problem in enumerate(programs):
        files.append(tmp_path / f"p{number}.pl")
        files[-1].write_text(problem.to_prolog(), encoding="utf-8")
    script = tmp_path / "all.pl"
    script.write_text(
        "one(F) :- load_files(F, [silent(true)]), findall(V, goal(V), Vs), sort(Vs, S), print(S), nl, "
        "abolish_all_tables, unload_file(F).\n" + "".join(f":- one('{file}').\n" for file in files)
    )
    command = ["swipl", "-q", "-t", "halt", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == [f"[{problem.answer}]" for problem in programs], done.stderr[-2000:]


def test_no_edge_leads_into_an_axiom():
    graph = execute(Program.from_text("cont(A, fig) = 3. comp(B, A, fig) = 2. cont(B, fig) = 5. goal cont(B, fig) = ?"))
    assert graph.edges == ()
    assert shortest_proof(graph).length == 0


def test_reference_reasoners_take_their_orders():
    # a and b are told; from a follow c, then d; from b follows e; d and e give the goal g
    graph = Hypergraph.from_edges([("a", "c"), ("c", "d"), ("b", "e"), ("de", "g"), ("e", "f")], axioms="ab", goal="g")

    def names(edges):
        return "".join(graph.nodes[node] for node in theorem_order(graph, edges))

    assert names(eager_order(graph)) == "cdegf"
    assert names(eager_order(graph, until_goal=True)) == "cdeg"
    assert names(breadth_first_order(graph)) == "cedfg"
    assert names(efficient_order(graph, shortest_proof(graph))) == "cdeg"
    liking = {"e": 3, "f": 2, "c": 1, "d": 1, "g": 9}
    assert names(best_first_order(graph, lambda node: liking[graph.nodes[node]])) == "efcdg"
    assert sorted(names(random_order(graph, 3, until_goal=False))) == list("cdefg")
    assert random_order(graph, 3) == random_order(graph, 3)


def test_a_large_program_is_executed_and_proven():
    rng = random.Random(0)
    value = [rng.randrange(2, 1000) for _ in range(10_000)]
    pairs = {(n, rng.randrange(max(0, n - 20), n)) for n in range(1, 10_000)}
    pairs |= {tuple(sorted(rng.sample(range(10_000), 2), reverse=True)) for _ in range(15_000)}
    told = [comp((f"a{n}", "fig", 0), (f"a{m}", "fig", 0), value[n] - value[m]) for n, m in sorted(pairs)]
    program = Program((cont("a0", "fig", value[0]), *told), (), cont("a9999", "fig", None))
    graph = execute(program, limit=100_000)
    assert len(graph.edges) > 45_000
    proof = shortest_proof(graph)
    assert (proof.length, proof.optimal) == (shortest_proof(graph, objective="tree").length, True)


def test_text_after_transfers_speaks_of_the_state_after_them():
    told = "Ada has 10 drums. Bo has 2 drums more than Ada. Ada then gives Bo’s uncle 4 drums. Cy has 1 drum more than Ada. "  # noqa: E501
    assert read_problem(told + "How many drums does Bo have?").answer == 12
    assert read_problem(told + "How many drums does Cy have?").answer == 7


def test_a_program_is_written_as_it_is_read():
    for bundle in bundles(1, 4):
        for problem in bundle.problems.values():
            assert Program.from_text(problem.program.to_text()) == problem.program
            assert Program.from_json(problem.program.to_json()) == problem.program


def test_datalog_chains_go_through_the_same_hypergraph():
    text = "cat(tom). mammal(?x) :- cat(?x). animal(?x) :- mammal(?x). furry(?x) :- cat(?x). goal animal(tom)."
    graph = execute(Program.from_text(text))
    assert shortest_proof(graph).length == 2
    assert len(graph.theorems) == 3


def test_what_contradicts_is_refused_with_both_derivations():
    text = "cont(A, fig) = 3. comp(B, A, fig) = 2. cont(B, fig) = 9. goal cont(B, fig) = ?"
    with pytest.raises(InconsistentProgram, match="two values") as caught:
        execute(Program.from_text(text))
    assert "= 9" in caught.value.first
    assert "= 5" in caught.value.second


@pytest.mark.parametrize("limit", [20, 30])
def test_what_grows_without_end_is_refused(limit):
    rules = tuple(Rule((f"p{i + 1}", "?x"), ((f"p{i}", "?x"),)) for i in range(40))
    told = Program.from_text("p0(a).").axioms
    compared = [comp((f"a{n + 1}", "fig", 0), (f"a{n}", "fig", 0), 1) for n in range(40)]
    for program in (Program(told, rules), Program((cont("a0", "fig", 1), *compared))):
        with pytest.raises(InconsistentProgram, match=f"more than {limit} theorems"):
            execute(program, limit=limit)
        assert len(execute(program, limit=81).nodes) <= 81


@pytest.mark.parametrize("goal", ["cont(C, fig) = ?", "cont(A, fig) = 4"])
def test_a_goal_that_does_not_follow_is_refused(goal):
    with pytest.raises(GoalNotDerivable, match="goal"):
        execute(Program.from_text(f"cont(A, fig) = 3. goal {goal}"))


@pytest.mark.parametrize(
    "text",
    ["cont(A, fig).", "cont(A) = 3", "cont(A, fig) = 3 goal", "total(x, (A, b)) = 3", "comp(A, A, fig) = 1", "p(?x)."],
)
def test_a_bad_statement_is_named(text):
    with pytest.raises(ValueError, match=r"text|total|comp"):
        Program.from_text(text)
