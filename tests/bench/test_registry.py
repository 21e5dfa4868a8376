"""The list of methods agrees with everything that is made from it."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import thrifty
from thrifty._common.ledger import Workload
from thrifty.bench import environment, registry
from thrifty.bench.carried import CARRIED

ROOT = Path(__file__).parents[2]
SECTIONS = [
    "What it saves, and for whom", "Switch it on", "What it costs", "Published result", "Measured result",
    "When not to use it", "Where we depart from the paper or its code, and why", "Maturity", "Citation",
]  # fmt: skip
each_method = pytest.mark.parametrize("method", registry.METHODS, ids=lambda method: method.name)


@each_method
def test_everything_a_method_names_is_there(method):
    package = import_module(method.package)
    assert set(method.exports) <= set(package.__all__)
    folder = Path(package.__file__).parent
    assert callable(import_module(f"{method.package}.evidence").run)
    predict = import_module(f"{method.package}.cost").predict
    assert not predict(Workload("nothing that there is")).applies
    assert method.has_cli == (folder / "cli.py").exists()
    if method.has_cli:
        app = import_module(f"{method.package}.cli").app
        assert app.registered_callback, "without a callback typer makes a single command of an app that has one"
    assert method.package.split(".")[1] == method.room
    assert set(method.carried) <= set(CARRIED)
    assert set(method.extras) <= set(environment.extras()), "new in pyproject.toml? install again (`make .venv/made`)"
    assert (folder / "README.md").exists()
    assert re.match(r"@\w+\{\w+,", method.citation)


@each_method
def test_the_card_has_its_sections_and_no_snippet_that_nobody_runs(method):
    card = Path(import_module(method.package).__file__).with_name("README.md").read_text()
    outside = re.sub(r"^```.*?^```", "", card, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^## (.*)$", outside, re.MULTILINE) == SECTIONS
    fences = re.findall(r"^```([^\n`]*)\n.*?^```$", card, re.MULTILINE | re.DOTALL)
    assert set(fences) <= {"python", "console", "full-scale"}


@each_method
def test_every_claim_is_measured_somewhere(method):
    """A claim's id stands in the source where it is claimed, and where it is measured."""
    claims = import_module(f"{method.package}.evidence").CLAIMS
    folder = Path(import_module(method.package).__file__).parent
    source = "".join(path.read_text() for path in sorted(folder.glob("evidence*/**/*.py")) or [folder / "evidence.py"])
    for claim in claims:
        parts = {claim.id, *(claim.id[: cut.start()] for cut in re.finditer("-", claim.id))}
        assert max(len(re.findall(rf"""["']{re.escape(part)}["'-]""", source)) for part in parts) > 1, claim.id


def test_the_core_knows_nothing_of_the_bench():
    """Only evidence and the command line may import the harness; a method imports no other method."""
    for path in sorted((ROOT / "src" / "thrifty").rglob("*.py")):
        method = next((m for m in registry.METHODS if m.package.replace(".", "/") in path.as_posix()), None)
        if method is None or "evidence" in path.as_posix():
            continue
        imported = re.findall(r"^\s*(?:from|import) (thrifty[\w.]*)", path.read_text(), re.MULTILINE)
        if path.name != "cli.py":
            assert not [name for name in imported if name.startswith("thrifty.bench")], path
        others = {other.package for other in registry.METHODS} - {method.package}
        assert not [name for name in imported if name.startswith(tuple(others))], path


def test_types_see_the_top_level_names():
    """A lazy name that the block for type checkers lacks is ``Any`` to whoever uses it."""
    tree = ast.parse(Path(thrifty.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(thrifty.__all__)


def test_the_top_level_names_are_those_of_the_registry():
    exported = [name for method in registry.METHODS for name in method.exports]
    assert sorted(thrifty.__all__) == sorted(exported)
    assert set(exported) <= set(dir(thrifty))
    for name in exported:
        assert getattr(thrifty, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = thrifty.Nothing


def test_make_installs_what_the_methods_need():
    (line,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    needed = {extra for method in registry.METHODS for extra in method.extras}
    assert needed | {"bench", "dev"} <= set(line.split(",")), "the line EXTRAS of the Makefile lacks some"


def test_the_readme_holds_the_table():
    held = registry.markdown_table() in (ROOT / "README.md").read_text()
    assert held, "put what `thrifty list --markdown` prints into README.md"


@each_method
def test_the_readme_says_what_to_install(method):
    extras = f'".[{",".join(method.extras)}]"' if method.extras else "."
    (line,) = re.findall(rf"^pip install {re.escape(extras)} +# (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert method.name in re.findall(r"[\w-]+", line)


def test_methods_are_found_by_whatever_they_are_called():
    for words in ("trees", "DTLS", "2510.12726", "lens parameterized", "decision tree", "scikit"):
        assert "trees" in [method.name for method in registry.find(words)], words
    assert registry.find("counterfactual teapot") == []
    assert registry.find("") == []
    assert registry.get("2510.12726").name == "trees"
    with pytest.raises(ValueError, match=r"there is no 'tree'; did you mean trees\?"):
        registry.get("tree")


@pytest.mark.parametrize("statement", ["import thrifty", "import thrifty.cli; thrifty.cli.main(['--help'])"])
def test_nothing_heavy_is_imported_for_a_name_or_for_help(statement):
    heavy = "[name for name in ('torch', 'numba', 'sklearn', 'scipy') if name in sys.modules]"
    script = f"import sys, atexit; atexit.register(lambda: print('heavy:', {heavy})); {statement}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("heavy: []")
