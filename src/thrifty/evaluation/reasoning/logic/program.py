"""Logic programs: axioms, rules and a goal; read from text, written as text, Prolog or Datalog.

The text format is one statement a full stop. Times that are left out are 0::

    cont(Ivo, drum) = 14.                  # Ivo has 14 drums
    comp(Pia, Ivo, drum) = 6.              # Pia has 6 more than Ivo
    transfer(Rolf, Uma, flute) = 5.        # from Uma to Rolf
    goal total("music instrument", (Pia, drum, 0), (Rolf, flute, 1)) = ?.

Rules with variables are Datalog: ``mammal(?x) :- cat(?x).``, facts ``cat(tom).``, and a goal ``goal mammal(tom).``
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from thrifty._common.extras import require
from thrifty.evaluation.reasoning.logic.datalog import TRUE, Rule, is_variable, written
from thrifty.evaluation.reasoning.logic.export import to_datalog, to_prolog
from thrifty.evaluation.reasoning.logic.theorems import (
    PREDICATES,
    Container,
    Theorem,
    comp,
    compeq,
    cont,
    from_lists,
    rate,
    spell,
    times,
    total,
    transfer,
)


@dataclass(frozen=True)
class Program:
    """What is given, what may be inferred, and what is asked.

    Args:
        axioms: Theorems that are given, in the order of the text.
        rules: Datalog rules beside the built-in ones of word problems.
        goal: What is asked (value ``None``) or to be proven; or ``None``.

    Example:
        >>> program = Program.from_text("cont(Ada, fig) = 3. comp(Bo, Ada, fig) = 2. goal cont(Bo, fig) = ?")
        >>> print(program.to_text())
        cont(Ada, fig, 0) = 3.
        comp((Ada, fig, 0), (Bo, fig, 0)) = -2.
        goal cont(Bo, fig, 0) = ?.
        <BLANKLINE>

    Source:
        arXiv 2510.25626, section on logic programs.
    """

    axioms: tuple[Theorem, ...]
    rules: tuple[Rule, ...] = ()
    goal: Theorem | None = None

    @classmethod
    def from_text(cls, text: str) -> Program:
        """Read the text format.

        Raises:
            ValueError: A statement cannot be read; the message shows it.
            ImportError: lark is not installed.
        """
        lark = require("lark", extra="reasoning")
        try:
            tree = _grammar().parse(text if text.rstrip().endswith(".") else text + ".")
        except lark.exceptions.UnexpectedInput as error:
            where = " ".join(error.get_context(text + " ").split())
            raise ValueError(f"text: line {error.line}: cannot read near {where!r}") from None
        axioms: list[Theorem] = []
        rules: list[Rule] = []
        goal = None
        for kind, *parts in (_statement(child) for child in tree.children):
            if kind == "rule":
                rules.append(Rule(parts[0], tuple(parts[1])))
            elif kind == "goal":
                if goal is not None:
                    raise ValueError("text: expected one goal, got two")
                goal = _theorem(parts[0], parts[1], asked=True)
            else:
                axioms.append(_theorem(parts[0], parts[1], asked=False))
        return cls(tuple(axioms), tuple(rules), goal)

    def to_text(self) -> str:
        """Write the text format, which :meth:`from_text` reads back."""
        lines = [f"{_stated(axiom)}." for axiom in self.axioms]
        lines += [str(rule) for rule in self.rules]
        lines += [] if self.goal is None else [f"goal {_stated(self.goal)}."]
        return "\n".join(lines) + "\n"

    def to_prolog(self) -> str:
        """Write a Prolog program (SWI's tabling) whose ``goal(Value)`` is the answer."""
        return to_prolog(self)

    def to_datalog(self) -> str:
        """Write a Datalog program in clingo's dialect, whose ``goal(Value)`` is the answer."""
        return to_datalog(self)

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can carry."""
        goal = None if self.goal is None else {"key": self.goal.key, "value": self.goal.value}
        return {
            "axioms": [{"key": axiom.key, "value": axiom.value} for axiom in self.axioms],
            "rules": [{"head": rule.head, "body": rule.body, "name": rule.name} for rule in self.rules],
            "goal": goal,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Program:
        """Read what :meth:`to_json` gave."""
        goal = found["goal"]
        return cls(
            tuple(Theorem(from_lists(axiom["key"]), axiom["value"]) for axiom in found["axioms"]),
            tuple(Rule(from_lists(r["head"]), from_lists(r["body"]), r["name"]) for r in found["rules"]),
            None if goal is None else Theorem(from_lists(goal["key"]), goal["value"]),
        )


def _stated(theorem: Theorem) -> str:
    return str(theorem) if theorem.predicate in PREDICATES else spell(theorem.key)


_GRAMMAR = r"""
start: statement+
statement: "goal" atom ["=" value] "." -> goal
         | atom ":-" atom ("," atom)* "." -> rule
         | atom ["=" value] "." -> fact
atom: NAME "(" term ("," term)* ")"
?term: NAME -> name | INT -> number | VARIABLE -> variable | STRING -> string | "(" term ("," term)* ")" -> group
value: INT | "?" -> unknown
NAME: /[^\W\d]\w*/
VARIABLE: /\?[a-z]\w*/
INT: /-?\d+/
STRING: /"(\\.|[^"\\])*"/
COMMENT: /[#%][^\n]*/
%ignore COMMENT
%ignore /\s+/
"""


@cache
def _grammar() -> Any:
    return require("lark", extra="reasoning").Lark(_GRAMMAR, parser="lalr", lexer="contextual")


def _statement(tree: Any) -> tuple:
    kind = str(tree.data)
    if kind == "rule":
        head, *body = map(_atom, tree.children)
        return kind, head, body
    atom, value = tree.children
    if value is not None:
        value = int(value.children[0]) if value.children else "?"
    return kind, _atom(atom), value


def _atom(tree: Any) -> tuple:
    name, *terms = tree.children
    return (str(name), *map(_term, terms))


def _term(tree: Any) -> Any:
    kind, parts = str(tree.data), tree.children
    if kind == "group":
        return tuple(map(_term, parts))
    text = str(parts[0])
    if kind == "number":
        return int(text)
    if kind == "string":
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return None if kind == "name" and text == "nobody" else text


def _place(part: Any, entity: str | None = None) -> Container | None:
    if part is None:
        return None
    if isinstance(part, str) and entity is not None:
        return (part, entity, 0)
    if isinstance(part, tuple) and len(part) in (2, 3) and all(isinstance(piece, str) for piece in part[:2]):
        time = part[2] if len(part) == 3 else 0
        if isinstance(time, int) and time >= 0:
            return (part[0], part[1], time)
    raise ValueError(f"text: expected an agent's container (agent, entity, time), got {part!r}")


def _theorem(atom: tuple, value: Any, *, asked: bool) -> Theorem:
    """Check a statement's arguments, and put its key in its one form."""
    name, *args = atom
    if name not in PREDICATES:
        if value is not None or any(is_variable(part) for part in args):
            raise ValueError(f"text: {written(atom)}: expected constants and no value, for a predicate of no quantity")
        return Theorem(atom, TRUE)
    amount = None if value in (None, "?") else int(value)
    if amount is None and not asked and name != "compeq":
        raise ValueError(f"text: {spell(atom)}: expected '= <whole number>', got no number")
    try:
        return _made(name, args, amount)
    except (TypeError, IndexError) as error:
        raise ValueError(f"text: {spell(atom)}: the arguments do not fit {name!r}: {error}") from None


def _made(name: str, args: list[Any], amount: Any) -> Theorem:
    if name == "cont":
        if not 2 <= len(args) <= 3 or not all(isinstance(part, str) for part in args[:2]):
            raise ValueError(f"text: cont: expected (agent, entity) or (agent, entity, time), got {tuple(args)}")
        return cont(args[0], args[1], amount, *args[2:])
    if name == "total":
        return total(args[0], [_place(part) for part in _flat(args[1:])], amount)  # type: ignore[misc]
    entity = args.pop() if args and isinstance(args[-1], str) and len(args) == 3 and name != "rate" else None
    if name == "rate":
        if all(isinstance(part, str) for part in args) and len(args) == 3:
            return rate(args[0], args[1], args[2], amount)
        a, b = (_place(part) for part in args)
        return Theorem(("rate", a, b), amount)
    if name == "compeq":
        a, b, c, d = (_place(part) for part in args)
        return compeq(a, b, c, d)  # type: ignore[arg-type]
    a, b = (_place(part, entity) for part in args)
    if name == "transfer":
        return transfer(a, b, amount)
    if a is None or b is None:
        raise ValueError(f"text: {name}: expected two containers, got nobody")
    return comp(a, b, amount) if name == "comp" else times(a, b, amount)


def _flat(args: list[Any]) -> list[Any]:
    """Containers may stand one by one, or in one group as keys have them."""
    only = args[0] if len(args) == 1 else None
    return list(only) if isinstance(only, tuple) and isinstance(only[0], tuple) else args
