"""Options that several commands of ``thrifty token-reduction`` share: which model, and which schedule."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

METHODS = "frequency, tome, evit, pool, random or low"


@dataclass(frozen=True)
class Source:
    """Which model a command works on."""

    model: Annotated[str, typer.Argument(help="A folder of transformers, or the name of a timm model.")]
    weights: Annotated[Path | None, typer.Option(help=".safetensors or .pth for a timm model.", exists=True)] = None
    random: Annotated[bool, typer.Option("--random", help="Random weights: for counts and speed.")] = False

    def load(self, classes: int | None = None) -> Any:
        """Return the model, with a new head if the number of classes is given."""
        from thrifty.inference.token_reduction import files

        return files.load_model(self.model, self.weights, random=self.random, classes=classes)


@dataclass(frozen=True)
class Schedule:
    """Where tokens are dropped, how many, and into how many DC cells the others go."""

    layers: Annotated[
        str | None, typer.Option(help="Where tokens are dropped, numbered from 1; else 4,7,10 of 12, in proportion.")
    ] = None
    keep: Annotated[str, typer.Option(help="Share of the remaining tokens that each keeps, or one share.")] = "0.7"
    window: Annotated[
        str | None, typer.Option(help="DC cells along each side, for each layer; else 2 at the first, 1 at the others.")
    ] = None

    def config(self, model: Any, method: str = "frequency", **others: Any) -> Any:
        """Return a method's setting for a model; windows and other fields are those of ``"frequency"``."""
        from thrifty.inference.token_reduction import named
        from thrifty.inference.token_reduction.config import published_layers
        from thrifty.inference.token_reduction.hosts import find_host

        layers = _numbers(self.layers, int, "layers") if self.layers else published_layers(len(find_host(model).blocks))
        shares, cells = (
            _numbers(self.keep, float, "keep"),
            _numbers(self.window, int, "window") if self.window else None,
        )
        config = named(method, layers, shares[0] if len(shares) == 1 else shares)
        if method != "frequency":
            return config
        settings: dict[str, Any] = {"window": cells[0] if cells and len(cells) == 1 else cells} | others
        return replace(config, **settings)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take a :class:`Source` or a :class:`Schedule`: typer sees their fields as options of its own."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {p.name: p.annotation for p in signature.parameters.values() if is_dataclass(p.annotation)}
    spread: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        kind: Any = groups.get(parameter.name)
        spread += [parameter] if kind is None else inspect.signature(kind, eval_str=True).parameters.values()

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        command(**made, **given)

    spread = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in spread]
    vars(run)["__signature__"] = signature.replace(parameters=spread)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    return run


def _numbers(text: str, kind: Any, name: str) -> Any:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{name}: expected numbers with commas between them, got {text!r}") from None
