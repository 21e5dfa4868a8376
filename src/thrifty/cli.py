"""The ``thrifty`` command. It imports a method only when that method's own command is used."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from thrifty.bench import registry


class _Deferred(TyperGroup):
    """A method's command before anyone uses it: the help line comes from the registry, the rest from the method."""

    def __init__(self, method: registry.Method) -> None:
        panel = "Methods" if method in registry.METHODS else "Commands"
        super().__init__(name=method.name, help=method.line, rich_help_panel=panel)
        self._method = method

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Go on with the method's own command."""
        return self._load().make_context(info_name, args, parent=parent, **extra)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return one of the method's verbs."""
        return self._load().get_command(ctx, cmd_name)

    def _load(self) -> Any:
        return typer.main.get_command(import_module(f"{self._method.package}.cli").app)


class LazyGroup(TyperGroup):
    """The commands written below, and one for each method that has a command line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, the house's own first."""
        return [*super().list_commands(ctx), *_with_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return one command; a method's is a stand-in until it is run."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        return _Deferred(_with_commands()[cmd_name]) if cmd_name in _with_commands() else None


def _with_commands() -> dict[str, registry.Method]:
    """Return what has a command line of its own: the adviser, and methods."""
    return {entry.name: entry for entry in (*registry.BY_NAME, *registry.METHODS) if entry.has_cli}


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=True, rich_markup_mode="markdown")


@app.callback()
def _thrifty() -> None:
    """Make machine learning cheaper: published methods, as parts of the libraries you already use.

    `thrifty list` shows the methods, `thrifty bench` measures them here, beside what you would
    pick instead.
    """


@app.command("list")
def list_methods(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table that the README holds.")] = False,
) -> None:
    """List the methods."""
    if markdown:
        typer.echo(registry.markdown_table())
    else:
        _show(registry.METHODS)


@app.command("find")
def find_methods(
    words: Annotated[list[str], typer.Argument(help="Words of a name, acronym, title, tag, or an arXiv id.")],
) -> None:
    """Find methods by what they are called or what they are for: thrifty find "decision tree"."""
    found = registry.find(" ".join(words))
    if not found:
        raise ValueError(f"words: no method matches {' '.join(words)!r}; `thrifty list` shows all")
    _show(found)


@app.command()
def cite(method: Annotated[str, typer.Argument(help="A method's name or arXiv id.")]) -> None:
    """Print the BibTeX entry of the paper behind a method."""
    typer.echo(registry.get(method).citation)


@app.command()
def env() -> None:
    """Show what is installed, which extras are complete, and where files are kept (for bug reports)."""
    from thrifty.bench import environment

    for name, value in environment.describe():
        typer.echo(f"{name:<24} {value}")


@app.command()
def bench(
    methods: Annotated[list[str] | None, typer.Argument(help="Which methods; none: all of them.")] = None,
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The whole experiment (15 min a method) or its core (30 s).")
    ] = False,
    seed: Annotated[int, typer.Option(help="Every random choice follows from it.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    data: Annotated[
        Path | None, typer.Option(help="Your own data in place of the embedded set (for methods named).", exists=True)
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Fetch nothing; use what is in the cache.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for results and report.")] = Path("report"),
    json_out: Annotated[
        str | None, typer.Option("--json", metavar="PATH|-", help="Also write the results there; - is standard output.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder or over a file that is not ours.")
    ] = False,
) -> None:
    """Measure methods beside what you would pick instead, and write a report.

    Each method runs in its own process, on data that ships with a package. A claim *holds*, *falls short*, is *cheaper
    but worse*, is *reported* (it had no target) or *cannot be shown* here; the exit status is 0 whatever they say, and
    1 where an experiment itself failed. An interrupted --full run goes on where it stopped.
    """
    from thrifty.bench import command

    command.bench(methods or [], full, seed, device, data, offline, out, json_out, force)


def _show(methods: Any) -> None:
    """Print methods as a table."""
    table = Table("method", "what it does", "saves", "in", "maturity", box=None, pad_edge=False, header_style="bold")
    for method in methods:
        table.add_row(method.name, method.line, method.saves, method.host, method.maturity)
    Console().print(table)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; an expected error is one line on standard error and exit status 2."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # torch's profiler, by which memory is measured, is silent
    try:
        typer.main.get_command(app).main(args=arguments, prog_name="thrifty")
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        sys.stderr.write(f"error: {message}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
