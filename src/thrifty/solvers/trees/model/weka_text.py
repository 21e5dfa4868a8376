"""The lines of a tree that WEKA's J48 has printed: branches, each with a test, a level, and perhaps a leaf.

Source: ``weka.classifiers.trees.j48.ClassifierTree.dumpTree`` and ``Distribution.dumpLabel`` of WEKA 3.8 and 3.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADER = re.compile(r"^J48 (un)?pruned tree\s*$")
_BARS = re.compile(r"^(?:\|   )*")
_TEST = re.compile(r"^(?P<name>.+?) (?P<test><=|>|=|!=|<|>=) (?P<rest>.*)$")
_WEIGHT = r"\d+(?:\.\d+)?(?:E\d+)?"
_LEAF = re.compile(rf"^(?P<label>.+) \((?P<weight>{_WEIGHT})(?:/(?P<errors>{_WEIGHT}))?\)$")
_SIZE = re.compile(r"^Size of the tree\s*:\s*(\d+)", re.MULTILINE)
_MATRIX_ROW = re.compile(r"^[\d.\s]+\|\s+\w+ = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Branch:
    """A branch of the printed tree: the test that leads into it, and the leaf at its end if there is one."""

    number: int
    depth: int
    name: str
    test: str  # "" for the only line of a tree that is one leaf
    value: str
    label: str | None = None
    weight: float = 0.0
    errors: float = 0.0


def read_branches(text: str, classes: list[str] | None) -> tuple[list[Branch], list[str]]:
    """The branches of the tree in J48's output.

    Args:
        text: What J48 printed: the tree alone, or the whole output around it.
        classes: Class names, as they print. ``None``: those of the confusion matrix.

    Returns:
        The branches from top to bottom, and the class names known beforehand (empty if there is no matrix).

    Raises:
        ValueError: There is no tree in the text, or more than one, or it is cut off, or a line is none of J48's.
    """
    known = _MATRIX_ROW.findall(text) if classes is None else classes
    lines = [_parse(number, line, known) for number, line in _tree_lines(text)]
    size, shown = _SIZE.search(text), 1 if lines[0].test == "" else len(lines) + 1
    if size and int(size[1]) != shown:
        raise ValueError(
            f"text: expected {size[1]} nodes, as its last line says, got {shown}: it is cut off, or edited"
        )
    return lines, known


def _tree_lines(text: str) -> list[tuple[int, str]]:
    """The lines of the tree with their numbers (from 1), without what J48 prints before and after."""
    lines = [line.rstrip() for line in text.splitlines()]
    headers = [number for number, line in enumerate(lines) if _HEADER.match(line)]
    if len(headers) > 1:
        raise ValueError(f"text: expected one tree, got {len(headers)} (line {headers[1] + 1})")
    start = headers[0] + 1 if headers else 0
    while start < len(lines) and not lines[start].strip("-"):
        start += 1
    stop = start
    while stop < len(lines) and lines[stop] and not lines[stop].startswith("Number of Leaves"):
        stop += 1
    if start == stop:
        raise ValueError("text: expected a tree, in lines such as 'width <= 0.6: setosa (50.0)', got none")
    return [(number + 1, lines[number]) for number in range(start, stop)]


def _parse(number: int, line: str, classes: list[str]) -> Branch:
    bars = _BARS.match(line)
    depth = len(bars[0]) // 4 if bars else 0
    body = line[4 * depth :]
    if depth == 0 and body.startswith(": "):
        return _leaf(Branch(number, 0, "", "", ""), body[2:])
    found = _TEST.match(body)
    if not found or found["test"] in ("<", ">="):
        hint = "; this reads J48, not RandomTree or REPTree" if found else ""
        raise ValueError(f"text, line {number}: expected 'name <= number', '>', '=' or '!=', got {line!r}{hint}")
    name, test, rest = _unquote(found["name"]), found["test"], found["rest"]
    # A value or a class may itself hold ": ": of the ways to split them, one whose class is known comes first.
    ways = [(rest[: at.start()], rest[at.end() :]) for at in re.finditer(": ", rest)]
    leaves = [(value, ending) for value, ending in ways if _LEAF.match(ending)]
    if not leaves:
        return Branch(number, depth, name, test, _unquote(rest.removesuffix(":")))
    best = [(value, ending) for value, ending in leaves if _label(ending) in classes]
    value, ending = (best or leaves)[0]
    return _leaf(Branch(number, depth, name, test, _unquote(value)), ending)


def _leaf(branch: Branch, ending: str) -> Branch:
    found = _LEAF.match(ending)
    if not found:
        raise ValueError(f"text, line {branch.number}: expected 'class (weight/errors)' at its end, got {ending!r}")
    weight, errors = float(found["weight"]), float(found["errors"] or 0)
    if not 0 <= errors <= weight:
        raise ValueError(
            f"text, line {branch.number}: expected at most {weight} errors, which is the weight, got {errors}"
        )
    return Branch(
        branch.number, branch.depth, branch.name, branch.test, branch.value, _label(ending), weight, errors
    )  # fmt: skip


def _label(ending: str) -> str:
    found = _LEAF.match(ending)
    return _unquote(found["label"]) if found else ""


def _unquote(name: str) -> str:
    """A name without the quotes of an ARFF file, if it has them."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", name[1:-1])
    return name


def siblings(lines: list[Branch]) -> dict[int, list[Branch]]:
    """The branches below each branch, by its line number; those at the root under 0."""
    if lines[0].test == "":
        return {}
    children: dict[int, list[Branch]] = {}
    above: list[Branch] = []
    for line in lines:
        if line.depth > len(above):
            raise ValueError(
                f"text, line {line.number}: expected one level more than the line above at most, got another"
            )
        del above[line.depth :]
        parent = above[-1] if above else None
        if parent is not None and parent.label is not None:
            raise ValueError(
                f"text, line {line.number}: expected no line below line {parent.number}, which ends in a leaf"
            )
        children.setdefault(parent.number if parent else 0, []).append(line)
        above.append(line)
    for line in lines:
        if line.label is None and line.number not in children:
            raise ValueError(
                f"text, line {line.number}: expected a leaf or lines below it, got none: it is cut off, or not J48's"
            )
    for group in children.values():
        _check_group(group)
    return children


def _check_group(group: list[Branch]) -> None:
    """Siblings test the same attribute: ``<=`` and ``>``, ``=`` and ``!=``, or ``=`` with each of several values."""
    first = group[0]
    tests = [line.test for line in group]
    pair = len(group) == 2 and group[1].value == first.value and tests in (["<=", ">"], ["=", "!="])
    several = len(group) > 1 and set(tests) == {"="} and len({line.value for line in group}) == len(group)
    if {line.name for line in group} != {first.name} or not (pair or several):
        where = ", ".join(str(line.number) for line in group[:5])
        raise ValueError(
            f"text, lines {where}: expected the branches of one cut on {first.name!r}: '<=' and '>' with one number, "
            "'=' and '!=' with one value, or '=' with each value"
        )
