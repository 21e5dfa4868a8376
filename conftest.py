"""Runs the snippets of the README, of CONTRIBUTING and of the method cards, and the Examples of docstrings."""

from __future__ import annotations

import doctest
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import typer
from sybil import Example, Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from thrifty import cli

BIN = Path(sys.executable).parent


def run_console(example: Example) -> None:
    """Run the lines that begin with ``$``; each must exit with status 0. What they print is not compared."""
    lines = [line for line in example.parsed.splitlines() if line.startswith("$ ")]
    assert lines, "a console block has lines that begin with '$ '"
    for line in lines:
        program, *words = shlex.split(line[2:], comments=True)
        if program == "thrifty":  # in this process, which has imported the heavy hosts already
            with pytest.raises(SystemExit) as ended:
                cli.main(words)
            assert not ended.value.code, line
        else:
            done = subprocess.run([str(BIN / program), *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def parse_commands(example: Example) -> None:
    """Hold every ``thrifty`` command against the real command line: its verbs and options exist. Nothing is run."""
    text = example.parsed.replace("\\\n", " ")
    commands = [shlex.split(line, comments=True) for line in text.splitlines() if "thrifty " in line]
    assert commands, "a full-scale block has lines that run thrifty"
    for words in commands:
        rest = words[words.index("thrifty") + 1 :]
        command: Any = typer.main.get_command(cli.app)
        while hasattr(command, "get_command"):
            found = command.get_command(command.context_class(command), rest[0])
            assert found is not None, f"{' '.join(words)}: there is no {rest[0]!r}"
            command, rest = found, rest[1:]
        command.make_parser(command.context_class(command)).parse_args(list(rest))


def enter_scratch_folder(namespace: dict) -> None:
    """Let a document's snippets write where nothing can be harmed."""
    namespace["_home"] = Path.cwd()
    namespace["_scratch"] = tempfile.TemporaryDirectory()
    os.chdir(namespace["_scratch"].name)


def leave_scratch_folder(namespace: dict) -> None:
    """Go back, and remove the folder."""
    os.chdir(namespace["_home"])
    namespace["_scratch"].cleanup()


documents = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser("console", run_console),
        CodeBlockParser("full-scale", parse_commands),
        SkipParser(),
    ],
    patterns=["README.md", "CONTRIBUTING.md"],
    setup=enter_scratch_folder,
    teardown=leave_scratch_folder,
)
examples = Sybil(
    parsers=[DocTestParser(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)],
    path="src",
    patterns=["*.py"],
    document_types={".py": PythonDocStringDocument},  # a docstring sees what its module sees
    setup=enter_scratch_folder,
    teardown=leave_scratch_folder,
)
pytest_collect_file = (documents + examples).pytest()
