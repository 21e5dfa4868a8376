"""Options of a command that mean the same everywhere, and are worded alike; and how a run of training is told of."""

from __future__ import annotations

from typing import Annotated

import typer

Seed = Annotated[int, typer.Option("--seed", help="Every random choice follows from it.", min=0, max=2**32 - 1)]
Force = Annotated[bool, typer.Option("--force", help="Replace what is already there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: an accelerator where there is one.")]
Precision = Annotated[str, typer.Option("--precision", help="Of weights and activations: fp32 or bf16.")]
Length = Annotated[int, typer.Option("--length", help="Tokens of a sequence.", min=2)]
SaveEvery = Annotated[int, typer.Option("--save-every", help="Steps between checkpoints.", min=1)]
Field = Annotated[str, typer.Option("--field", help="The field of a JSON object that holds the text.")]


def say_step(step: int, steps: int, loss: float) -> None:
    """Say on standard error how far a run of training is."""
    typer.echo(f"step {step} of {steps}: loss {loss:.4f}", err=True)
