"""``thrifty speculation``: measure, fit, predict, recommend, plot, and read acceptance off a server."""

from __future__ import annotations

import typer

from thrifty.inference.speculation.shell import asking, measuring

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


@app.callback()
def _speculation() -> None:
    """When speculative decoding pays off on mixtures of experts: measure, fit, and a schedule for vLLM or SGLang."""


for command in (measuring.measure, measuring.fit, asking.predict, asking.recommend, asking.plot, measuring.acceptance):
    app.command()(command)
