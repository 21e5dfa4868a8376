"""Every public name says what it takes, gives and raises, shows an example, and says where it comes from."""

import ast
import inspect
import re
import textwrap
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

from thrifty.bench.registry import METHODS

#: Conveniences of ours: no formula, algorithm or file format of anybody's is behind them.
OWN = {
    "EpochSampler", "VideoIndex", "as_events", "config_from_json", "describe_difference", "enter_epoch",
    "length_matched_selection", "make_loader", "measure_throughput", "named", "optimizer_state_bytes", "preset",
    "random_selection", "reduction_of", "register_architecture", "run_towers", "score_corpus", "visualize",
    "weighted_dataset",
}  # fmt: skip
PUBLIC = [
    pytest.param(method.package, name, getattr(import_module(method.package), name), id=f"{method.name}.{name}")
    for method in METHODS
    for name in import_module(method.package).__all__
]


def documented(docstring):
    """Return the arguments that a docstring describes, one or several a line."""
    lists = re.findall(r"^ *((?:\*{0,2}\w+,\s+)*\*{0,2}\w+): ", docstring, re.MULTILINE)
    return {name.strip("*") for names in lists for name in re.split(r",\s+", names)}


def is_raised_here(function):
    """Tell whether a function's own body raises anything but what the language asks for."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]
    return any("NotImplemented" not in ast.dump(error) and "StopIteration" not in ast.dump(error) for error in raised)


def missing(thing, *, member=False):
    """Name the sections that a docstring lacks."""
    doc = inspect.getdoc(thing) or ""
    if not thing.__doc__:
        return {"docstring"}
    sections = set(re.findall(r"^(\w+):", doc, re.MULTILINE))
    is_class = inspect.isclass(thing)
    wanted = set()
    if not member:
        signature = inspect.signature(thing)
        names = set(signature.parameters)
        if is_class and ("Attributes" in sections or "Arguments as :class:" in " ".join(doc.split())):
            names = set()  # others make it, or say it
        wanted |= {"Example"} | {f"Args: {name}" for name in names - documented(doc)}
        wanted |= set() if is_dataclass(thing) or thing.__name__ in OWN else {"Source"}
        if not is_class and signature.return_annotation != "None" and not re.match(r"(Return|Yield)\b", doc):
            wanted |= {"Returns"}
    made_by = ("__post_init__",) if is_dataclass(thing) else ("__init__",)
    bodies = [vars(thing).get(name) for name in made_by] if is_class else [thing]
    if any(is_raised_here(body) for body in bodies if inspect.isfunction(body)):
        wanted |= {"Raises"}
    return wanted - sections


def is_explained(package, constant):
    """Tell whether a comment that begins with ``#:`` stands above a constant, which can hold no docstring."""
    files = Path(import_module(package).__file__).parent.rglob("*.py")
    above = re.compile(rf"^#: .+\n{constant}\b.* = ", re.MULTILINE)
    return any(above.search(file.read_text()) for file in files)


@pytest.mark.parametrize(("package", "name", "thing"), PUBLIC)
def test_a_public_name_is_documented(package, name, thing):
    if not callable(thing):
        assert is_explained(package, name)
        return
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return
    found = missing(thing)
    if inspect.isclass(thing):
        for part, held in vars(thing).items():
            member = held.__func__ if isinstance(held, (classmethod, staticmethod)) else held
            if not part.startswith("_") and inspect.isfunction(member):
                found |= {f"{part}: {lack}" for lack in missing(member, member=True)}
    assert not found
