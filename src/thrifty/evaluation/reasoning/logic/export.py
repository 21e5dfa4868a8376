"""A program for other engines: SWI-Prolog (tabled) and clingo. Both state the rules once, with variables.

They share no code with :mod:`~thrifty.evaluation.reasoning.logic.arithmetic`, so that they can serve as oracles for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thrifty.evaluation.reasoning.logic.theorems import PREDICATES, Container, Theorem

if TYPE_CHECKING:
    from thrifty.evaluation.reasoning.logic.program import Program

_PROLOG = """\
:- encoding(utf8).
:- table cont/4.
:- table comp/7.
:- discontiguous cont/4, comp/7, times/7, transfer/7, rate/7, compeq/12, named/6.
:- dynamic times/7, transfer/7, rate/7, compeq/12, named/6.
cont(B,E,T,Y) :- comp(B,E,T,A,F,S,D), cont(A,F,S,X), Y is X + D.
cont(A,F,S,X) :- comp(B,E,T,A,F,S,D), cont(B,E,T,Y), X is Y - D.
cont(A,E,T,Y) :- times(A,E,T,B,F,S,Q), cont(B,F,S,X), Y is X * Q.
cont(B,F,S,X) :- times(A,E,T,B,F,S,Q), cont(A,E,T,Y), 0 is Y mod Q, X is Y // Q.
cont(R,E,T1,Y) :- transfer(R,E,T,_,_,_,Q), cont(R,E,T,X), T1 is T + 1, Y is X + Q.
cont(S,E,T1,Y) :- transfer(_,_,_,S,E,T,Q), cont(S,E,T,X), T1 is T + 1, Y is X - Q.
cont(A,F,S,Y) :- rate(A,E,T,A,F,S,Q), cont(A,E,T,X), Y is X * Q.
cont(A,E,T,Y) :- compeq(A,E,T,B,F,S,C,G,U,D,H,V), comp(C,G,U,D,H,V,Q), cont(B,F,S,X), Y is X + Q.
cont(B,F,S,X) :- compeq(A,E,T,B,F,S,C,G,U,D,H,V), comp(C,G,U,D,H,V,Q), cont(A,E,T,Y), X is Y - Q.
comp(C,G,U,D,H,V,Q) :- named(C,G,U,D,H,V), cont(C,G,U,X), cont(D,H,V,Y), Q is X - Y.
comp(D,H,V,C,G,U,P) :- comp(C,G,U,D,H,V,Q), P is -Q.
named(C,G,U,D,H,V) :- compeq(_,_,_,_,_,_,C,G,U,D,H,V).
"""
_CLINGO = """\
cont(B,E,T,X+D) :- comp(B,E,T,A,F,S,D), cont(A,F,S,X).
cont(A,F,S,Y-D) :- comp(B,E,T,A,F,S,D), cont(B,E,T,Y).
cont(A,E,T,X*Q) :- times(A,E,T,B,F,S,Q), cont(B,F,S,X).
cont(B,F,S,Y/Q) :- times(A,E,T,B,F,S,Q), cont(A,E,T,Y), Y \\ Q = 0.
cont(R,E,T+1,X+Q) :- transfer(R,E,T,Z,G,U,Q), cont(R,E,T,X).
cont(S,E,T+1,X-Q) :- transfer(Z,G,U,S,E,T,Q), cont(S,E,T,X).
cont(A,F,S,X*Q) :- rate(A,E,T,A,F,S,Q), cont(A,E,T,X).
cont(A,E,T,X+Q) :- compeq(A,E,T,B,F,S,C,G,U,D,H,V), comp(C,G,U,D,H,V,Q), cont(B,F,S,X).
cont(B,F,S,Y-Q) :- compeq(A,E,T,B,F,S,C,G,U,D,H,V), comp(C,G,U,D,H,V,Q), cont(A,E,T,Y).
comp(C,G,U,D,H,V,X-Y) :- named(C,G,U,D,H,V), cont(C,G,U,X), cont(D,H,V,Y).
comp(D,H,V,C,G,U,-Q) :- comp(C,G,U,D,H,V,Q).
named(C,G,U,D,H,V) :- compeq(A,E,T,B,F,S,C,G,U,D,H,V).
"""


def to_prolog(program: Program) -> str:
    """Write the program for SWI-Prolog; ``goal(Value)`` holds for the answer."""
    return _rendered(program, _PROLOG, " is ", _prolog_word)


def to_datalog(program: Program) -> str:
    """Write the program for clingo; ``goal(Value)`` holds for the answer."""
    return _rendered(program, _CLINGO, " = ", _clingo_word) + "#show goal/1.\n"


def _rendered(program: Program, rules: str, equals: str, word: Any) -> str:
    lines = [_fact(axiom, word) for axiom in program.axioms]
    lines += [
        f"{_atom(rule.head, word)} :- {', '.join(_atom(atom, word) for atom in rule.body)}." for rule in program.rules
    ]
    if program.goal is not None:
        lines += _goal(program.goal, equals, word)
    return rules + "\n".join(lines) + "\n"


def _goal(goal: Theorem, equals: str, word: Any) -> list[str]:
    if goal.predicate == "total":
        parts = [f"cont({_place(place, word)},V{number})" for number, place in enumerate(goal.key[2])]
        values = " + ".join(f"V{number}" for number in range(len(parts)))
        return [f"goal(V) :- {', '.join(parts)}, V{equals}{values}."]
    if goal.predicate == "cont":
        return [f"goal(V) :- cont({_place(goal.key[1:], word)},V)."]
    if goal.predicate == "comp":
        pair = ",".join(_place(place, word) for place in goal.key[1:])
        return [f"named({pair}).", f"goal(V) :- comp({pair},V)."]
    return [f"goal(1) :- {_atom(goal.key, word)}."]


def _fact(theorem: Theorem, word: Any) -> str:
    if theorem.predicate not in PREDICATES:
        return f"{_atom(theorem.key, word)}."
    parts: list[Any] = list(theorem.key[1:])
    if theorem.predicate == "cont":
        parts = [theorem.key[1:]]
    places = ",".join(_place(place, word) for place in parts)
    value = "" if theorem.predicate == "compeq" else f",{theorem.value}"
    return f"{theorem.predicate}({places}{value})."


def _atom(key: tuple, word: Any) -> str:
    return f"{key[0]}({','.join(word(part) for part in key[1:])})"


def _place(place: Container | None, word: Any) -> str:
    agent, entity, time = place or ("nobody", "nothing", 0)
    return f"{word(agent)},{word(entity)},{time}"


def _prolog_word(part: Any) -> str:
    if isinstance(part, int):
        return str(part)
    if part.startswith("?"):
        return str(part[1:].capitalize())
    return "'" + str(part).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _clingo_word(part: Any) -> str:
    if isinstance(part, int):
        return str(part)
    if part.startswith("?"):
        return str(part[1:].capitalize())
    return '"' + str(part).replace("\\", "\\\\").replace('"', '\\"') + '"'
