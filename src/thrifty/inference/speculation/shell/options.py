"""What the options of ``thrifty speculation`` are called, and what they name: a model, an acceptance, rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from thrifty.inference.speculation import Acceptance, Row, SpeculationModel

Fitted = Annotated[
    Path | None,
    typer.Argument(help="A model that fit wrote; none: a prior, from --config, --hardware and --draft-config."),
]
Config = Annotated[str | None, typer.Option(help="The target: a profile's name, a config.json or its folder.")]
DraftConfig = Annotated[str | None, typer.Option(help="The draft, likewise; a prior without it takes drafts as free.")]
Machine = Annotated[
    str | None, typer.Option(help="A device's name (h100, a100, ...) or a JSON file with tflops and tb_per_s.")
]
Gpus = Annotated[int, typer.Option(help="Devices that share the target.", min=1)]
Alpha = Annotated[float | None, typer.Option(help="Chance that a draft token is accepted.")]
Sigma = Annotated[float | None, typer.Option(help="Tokens a round over the most it could give (the paper's).")]
AcceptLength = Annotated[float | None, typer.Option(help="Mean tokens a round, bonus token included.")]
AcceptRate = Annotated[float | None, typer.Option(help="Accepted over drafted tokens, in [0, 1] (the engines').")]
At = Annotated[int | None, typer.Option(help="Draft length at which sigma, length or rate were seen.", min=1)]
MaxBatch = Annotated[int, typer.Option(help="The largest batch.", min=1)]
Context = Annotated[float, typer.Option(help="Tokens in each request's cache.", min=0)]


def model_of(
    path: Path | None, config: str | None, draft_config: str | None, hardware: str | None, gpus: int, context: float
) -> tuple[SpeculationModel, bool]:
    """Return the fitted model, or a prior and that it is one."""
    from thrifty.inference.speculation import Hardware, MoEShape, SpeculationModel, roofline_model

    if path is not None:
        if config or draft_config or hardware:
            raise ValueError("model: expected a fitted model or --config and --hardware, got both")
        found = SpeculationModel.load(path)
        if context and not found.kv_target:
            typer.echo("warning: --context changes nothing: the rows of this model had one context, or none", err=True)
        return found, False
    if not config or not hardware:
        raise ValueError("model: expected a fitted model, or --config and --hardware for a prior")
    target, draft = MoEShape.from_config(config), MoEShape.from_config(draft_config) if draft_config else None
    typer.echo(
        f"{config}: weights of {target.weight_bytes:g}, experts of {target.expert_weight_bytes:g} bytes", err=True
    )
    device = Hardware.from_name(hardware, count=gpus)
    return roofline_model(target, draft, device), True


def acceptance_of(
    alpha: float | None, sigma: float | None, length: float | None, rate: float | None, gamma: int | None
) -> Acceptance:
    """Return the acceptance that one of four options names.

    Raises:
        ValueError: None or several do, or it was seen at a draft length that is not given.
    """
    from thrifty.inference.speculation import Acceptance

    given = {"--alpha": alpha, "--sigma": sigma, "--accept-length": length, "--accept-rate": rate}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ValueError(f"acceptance: expected one of {', '.join(given)}, got {' and '.join(named) or 'none'}")
    if alpha is not None:
        return Acceptance.from_rate(alpha)
    if gamma is None:
        raise ValueError(f"at: expected the draft length at which {named[0]} was seen, got none")
    if sigma is not None:
        return Acceptance.from_sigma(sigma, gamma)
    if length is not None:
        return Acceptance.from_length(length, gamma)
    assert rate is not None
    return Acceptance.from_engine_rate(rate, gamma)


def rows_of(paths: list[Path], engine: str, gamma: int | None, metric: Any, shape: Any) -> list[Row]:
    """Return the rows that files hold, whoever wrote them."""
    from thrifty.inference.speculation import read_rows, read_sglang_bench, read_specforge, read_vllm_bench

    experts, top_k = (shape.num_experts, shape.top_k) if shape is not None else (1, 1)
    kind = engine if engine != "auto" else "vllm" if all(path.suffix == ".json" for path in paths) else "rows"
    if kind == "rows":
        return [row for path in paths for row in read_rows(path)]
    if kind == "vllm":
        return read_vllm_bench(paths, num_experts=experts, top_k=top_k, metric=metric)
    if kind == "specforge":
        return [row for path in paths for row in read_specforge(path, num_experts=experts, top_k=top_k)]
    if kind == "sglang":
        if gamma is None:
            raise ValueError("gamma: SGLang's results do not hold the draft length; give --gamma")
        return read_sglang_bench(paths, gamma=gamma, num_experts=experts, top_k=top_k, metric=metric)
    raise ValueError(f"engine: expected rows, vllm, sglang or specforge, got {engine!r}")


def sizes_of(rows: list[Row]) -> list[float]:
    """Return the batch sizes of rows."""
    return sorted({row.batch_size for row in rows})


def numbers(text: str, name: str) -> list[int]:
    """Return whole numbers that stand with commas between them.

    Raises:
        ValueError: They are not, or one is below 1.
    """
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name}: expected whole numbers with commas between them, got {text!r}") from None
    if min(found) < 1:
        raise ValueError(f"{name}: expected numbers of at least 1, got {text!r}")
    return found
