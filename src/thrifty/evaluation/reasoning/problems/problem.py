"""A word problem: its text, its program, its proofs, and its record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from thrifty.evaluation.reasoning.logic.chaining import execute
from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph
from thrifty.evaluation.reasoning.logic.orders import breadth_first_order, eager_order, efficient_order
from thrifty.evaluation.reasoning.logic.program import Program
from thrifty.evaluation.reasoning.logic.shortest import Proof, shortest_proof
from thrifty.evaluation.reasoning.logic.theorems import Theorem, from_lists
from thrifty.evaluation.reasoning.problems import wording
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon

CONNECTIONS = ("connected", "disconnected")
AMOUNTS = ("simple", "complex", "more_complex")
OVERLAPS = ("no_overlap", "entity_overlap", "agent_overlap", "agent_entity_overlap")
QUERIES = ("question", "prove")
#: What the prompts ask for, and the answer extraction looks for first.
ANSWER = "Therefore, the answer (arabic numerals) is"


class Cell(NamedTuple):
    """A condition of the experiment: how distractors hang together with the problem, how many, and what they share."""

    connection: str = "none"
    amount: str = "none"
    overlap: str = "none"

    def __str__(self) -> str:
        return "base" if self == BASE_CELL else "/".join(self)


BASE_CELL = Cell()
DISTRACTED = tuple(Cell(c, a, o) for c in CONNECTIONS for a in AMOUNTS for o in OVERLAPS)
CONTROLS = tuple(Cell("none", amount, "control") for amount in AMOUNTS)
#: Every condition: the base problem, 24 with distractors, and a control for each amount.
CELLS = (BASE_CELL, *DISTRACTED, *CONTROLS)


class Sentence(NamedTuple):
    """A statement of a problem: its text, what it says, and where it comes from."""

    text: str
    theorem: Theorem
    source: str = "base"


@dataclass(frozen=True)
class Problem:
    """A word problem and the program behind it.

    Args:
        id: Names it in files.
        seed: That of its bundle.
        cell: The condition that it belongs to.
        sentences: The statements, in text order.
        question: What is asked, or to be proven.
        goal: What the program asks; its value is ``None`` in a question.
        lexicon: Whose words it is in.

    Example:
        >>> from thrifty.evaluation.reasoning import read_problem
        >>> problem = read_problem("Mina has 16 figs. Ode has 5 figs less than Mina. How many figs does Ode have?")
        >>> problem.answer, problem.shortest.length
        (11, 1)
    """

    id: str
    seed: int
    cell: Cell
    sentences: tuple[Sentence, ...]
    question: str
    goal: Theorem
    lexicon: Lexicon

    @property
    def query(self) -> str:
        """``"question"`` or ``"prove"``."""
        return "question" if self.goal.value is None else "prove"

    @property
    def text(self) -> str:
        """The problem as a reader is given it."""
        return " ".join([*(sentence.text for sentence in self.sentences), self.question])

    @cached_property
    def program(self) -> Program:
        """The logic program that the text states."""
        return Program(tuple(sentence.theorem for sentence in self.sentences), (), self.goal)

    @cached_property
    def graph(self) -> Hypergraph:
        """Everything that follows from it."""
        return execute(self.program)

    @cached_property
    def shortest(self) -> Proof:
        """The shortest proof of the goal."""
        return shortest_proof(self.graph)

    @property
    def answer(self) -> int:
        """The goal's value."""
        return int(self.graph.nodes[self.graph.goal].value)  # type: ignore[index]

    @cached_property
    def eager(self) -> tuple[int, ...]:
        """The edges that an exhaustive reasoner states, in its order."""
        return eager_order(self.graph)

    @cached_property
    def breadth_first(self) -> tuple[int, ...]:
        """The edges that a breadth-first reasoner states, in its order."""
        return breadth_first_order(self.graph)

    @cached_property
    def efficient(self) -> tuple[int, ...]:
        """The shortest proof's edges, in the order in which an exhaustive reasoner states their theorems."""
        return efficient_order(self.graph, self.shortest)

    @cached_property
    def relevant(self) -> frozenset[int]:
        """The axioms that the shortest proof uses, by number (of the sentence, if no two say the same)."""
        used = {node for number in self.shortest.edges for node in self.graph.edges[number].tail}
        used |= {self.graph.goal} if not self.shortest.edges else set()  # type: ignore[arg-type]
        return frozenset(used & self.graph.given)

    def to_prolog(self) -> str:
        """Return the program for SWI-Prolog."""
        return self.program.to_prolog()

    @cached_property
    def gold_trace(self) -> str:
        """The written shortest proof: the axioms that it needs, each conclusion as soon as it follows, the answer."""
        return self.trace(self.efficient, only=self.relevant)

    @cached_property
    def eager_trace(self) -> str:
        """The written exhaustive proof: every axiom, every conclusion as soon as it follows, the answer."""
        return self.trace(self.eager)

    def trace(self, edges: Iterable[int], *, only: Iterable[int] | None = None, axioms: bool = True) -> str:
        """Write a proof as numbered lines.

        Args:
            edges: Numbers of its edges, in order; each axiom is told before it is first needed, in text order.
            only: Axioms that are told; ``None``: all.
            axioms: Tell axioms at all.
        """
        told = [node for node in self.graph.axioms if only is None or node in set(only)] if axioms else []
        texts = self.axiom_texts
        lines: list[str] = []
        waiting = list(told)
        for number in edges:
            edge = self.graph.edges[number]
            last = max((waiting.index(node) for node in edge.tail if node in waiting), default=-1)
            lines += [texts[node] for node in waiting[: last + 1]]
            del waiting[: last + 1]
            lines.append(wording.conclusion(self.graph, edge, self.lexicon))
        lines += [texts[node] for node in waiting]
        numbered = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
        return "\n".join([*numbered, f"{ANSWER} {self.answer}."])

    @cached_property
    def axiom_texts(self) -> dict[int, str]:
        """The sentence of each axiom."""
        number = {self.graph.nodes[node].key: node for node in self.graph.axioms}
        found: dict[int, str] = {}
        for sentence in self.sentences:
            found.setdefault(number[sentence.theorem.key], sentence.text)
        return found

    def to_record(self) -> dict[str, Any]:
        """Return the record of a JSONL file, without the head that says its version."""
        graph, proof = self.graph, self.shortest
        number = {graph.nodes[node].key: node for node in graph.axioms}
        body = [
            {
                "text": s.text,
                "lf": s.theorem.key[0],
                "args": s.theorem.key[1:],
                "value": s.theorem.value,
                "source": s.source,
                "relevant": number[s.theorem.key] in self.relevant,
            }
            for s in self.sentences
        ]
        steps = [
            {
                "text": wording.conclusion(graph, graph.edges[edge], self.lexicon),
                "id": graph.edges[edge].head,
                "lf": graph.nodes[graph.edges[edge].head].key[0],
                "args": graph.nodes[graph.edges[edge].head].key[1:],
                "value": graph.nodes[graph.edges[edge].head].value,
                "premises": graph.edges[edge].tail,
                "rule": graph.edges[edge].rule,
            }
            for edge in proof.edges
        ]
        return {
            "id": self.id,
            "seed": self.seed,
            "connection": self.cell.connection,
            "amount": self.cell.amount,
            "overlap": self.cell.overlap,
            "query_form": self.query,
            "question": self.question,
            "body": body,
            "goal": {"lf": self.goal.key[0], "args": self.goal.key[1:], "value": self.answer},
            "answer": self.answer,
            "program": {"axioms": [str(sentence.theorem) for sentence in self.sentences], "goal": str(self.goal)},
            "shortest": {"length": proof.length, "optimal": proof.optimal, "steps": steps},
            "eager_trace": [graph.edges[edge].head for edge in self.eager],
            "tree_stats": self._stats(),
        }

    def _stats(self) -> dict[str, Any]:
        depth: dict[int, int] = {}
        rules: dict[str, int] = {}
        for number in self.shortest.edges:
            edge = self.graph.edges[number]
            depth[edge.head] = 1 + max(depth.get(node, 0) for node in edge.tail)
            rules[edge.rule] = rules.get(edge.rule, 0) + 1
        return {"depth": max(depth.values(), default=0), "width": len(self.relevant), "rule_counts": rules}

    @classmethod
    def from_record(cls, record: dict[str, Any], lexicon: Lexicon | None = None) -> Problem:
        """Read what :meth:`to_record` gave.

        Raises:
            ValueError: Something is missing, or the recorded answer does not follow.
        """
        try:
            sentences = tuple(
                Sentence(s["text"], Theorem((s["lf"], *from_lists(s["args"])), s["value"]), s["source"])
                for s in json.loads(json.dumps(record["body"]))
            )
            goal = json.loads(json.dumps(record["goal"]))
            cell = Cell(record["connection"], record["amount"], record["overlap"])
            asked = None if record["query_form"] == "question" else goal["value"]
            theorem = Theorem((goal["lf"], *from_lists(goal["args"])), asked)
            problem = cls(
                record["id"], record["seed"], cell, sentences, record["question"], theorem, lexicon or Lexicon.default()
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"record: expected a problem's record, lacking {error}") from None
        if problem.answer != record["answer"]:
            raise ValueError(
                f"record: {record['id']}: the answer is recorded as {record['answer']}, {problem.answer} follows"
            )
        return problem
