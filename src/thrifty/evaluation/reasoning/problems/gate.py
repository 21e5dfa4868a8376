"""The consistency gate: a problem is let through only if its own text proves what it was made to prove.

The published generator has none: of 120 replayed connected problems with agent overlap, 23 give one agent's things two
values, and in one more an "irrelevant" tree derives a base quantity again.
"""

from __future__ import annotations

from thrifty.evaluation.reasoning.logic.errors import GoalNotDerivable, InconsistentProgram
from thrifty.evaluation.reasoning.logic.shortest import shortest_proofs
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.problems.reading import read_program


def faults(problem: Problem) -> list[str]:
    """Return what is wrong with a problem, in words; nothing, if it is as it should be.

    The program is read again from the final text. It must be free of contradiction, prove the goal, with one shortest
    proof, which uses no irrelevant sentence.

    Args:
        problem: The problem.

    Returns:
        The faults.

    Example:
        >>> from thrifty.evaluation.reasoning import read_problem
        >>> faults(read_problem("Mina has 16 figs. Ode has 5 figs less than Mina. How many figs does Ode have?"))
        []

    Source:
        arXiv 2510.25626's definition of irrelevant axioms; the gate is ours.
    """
    try:
        again = read_program((s.text for s in problem.sentences), problem.question, problem.lexicon.reader)
    except ValueError as error:
        return [str(error)]
    found = [] if again == problem.program else ["the text reads back as another program"]
    return found + shortfalls(problem)


def shortfalls(problem: Problem, length: int | None = None, answer: int | None = None) -> list[str]:
    """Return what is wrong with the program of a problem, in words; see :func:`faults`.

    Args:
        problem: The problem.
        length: The inferences that the shortest proof was made to have.
        answer: The value that the goal was made to have.
    """
    try:
        graph = problem.graph
    except (InconsistentProgram, GoalNotDerivable) as error:
        return [str(error)]
    found = []
    if answer is not None and problem.answer != answer:
        found.append(f"the goal is {problem.answer}, made to be {answer}")
    if length is not None and problem.shortest.length != length:
        found.append(f"the shortest proof has {problem.shortest.length} inferences, made to have {length}")
    if problem.shortest.method != "unique" and len(shortest_proofs(graph, cap=2)) > 1:
        found.append("there are several shortest proofs")
    sources = {s.theorem.key: s.source for s in problem.sentences}
    if any(sources[graph.nodes[node].key].startswith("irrelevant") for node in problem.relevant):
        found.append("the shortest proof uses a sentence that was to be irrelevant")
    if len(sources) < len(problem.sentences):
        found.append("two sentences say the same")
    return found
