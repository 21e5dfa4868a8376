"""The list of methods agrees with everything that is made from it."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import thrifty
from thrifty.bench import environment, registry
from thrifty.bench.carried import CARRIED

ROOT = Path(__file__).parents[2]
each_method = pytest.mark.parametrize("method", registry.METHODS, ids=lambda method: method.name)


@each_method
def test_everything_a_method_names_is_there(method):
    package = import_module(method.package)
    assert set(method.exports) <= set(package.__all__)
    for part in ("evidence", "cost", *(["cli"] if method.has_cli else [])):
        import_module(f"{method.package}.{part}")
    assert method.package.split(".")[1] == method.room
    assert set(method.carried) <= set(CARRIED)
    assert set(method.extras) <= set(environment.extras())
    assert (Path(package.__file__).parent / "README.md").exists()
    assert re.match(r"@\w+\{\w+,", method.citation)


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
    assert needed | {"bench", "dev"} <= set(line.split(","))


def test_the_readme_holds_the_table():
    assert registry.markdown_table() in (ROOT / "README.md").read_text()


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
