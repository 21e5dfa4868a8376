"""Fine-tuning of a reduced model on a folder of images, with its unreduced self as the teacher; also under torchrun.

The recipe is that of arXiv 2511.21477, section 4; see :mod:`thrifty.inference.token_reduction.distill`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from thrifty._common.checks import number, one_of, positive, whole
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.runs import Progress, first_process, world
from thrifty._common.weights import check_finite, load_saved
from thrifty.inference.token_reduction.distill import Distiller, average, check_distillation, logits_of
from thrifty.inference.token_reduction.patch import reduction_of

#: An epoch's batches of (images, labels), for (epoch, training).
Batches = Callable[[int, bool], Iterator[tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class Recipe:
    """How to fine-tune; the defaults are the paper's.

    Args:
        epochs: Passes over the images.
        lr: Rate of AdamW; it falls to 0 along a cosine, without warm-up.
        weight_decay: Likewise.
        distill: Weight of the distillation.
        temperature: Of its logits.
        teacher: ``"original"`` or ``"ema"``.
        ema: Decay of the average of the weights that is evaluated and saved; 0 for none.
        parameters: ``"all"`` weights, ``"norms"`` (LayerNorms and what the reduction added) or ``"added"``.
        precision: Of the forward pass, weights aside: ``"fp32"``, ``"bf16"`` or ``"fp16"``.
        seed: Of dropout, epoch by epoch, so that a run that goes on draws what one without a break does.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> Recipe(epochs=5, parameters="norms").lr
        0.0001
    """

    epochs: int = 30
    lr: float = 1e-4
    weight_decay: float = 2e-5
    distill: float = 0.5
    temperature: float = 1.0
    teacher: Literal["original", "ema"] = "original"
    ema: float = 0.9998
    parameters: Literal["all", "norms", "added"] = "all"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0

    def __post_init__(self) -> None:
        whole("epochs", self.epochs)
        positive("lr", self.lr, "a rate above 0")
        number("weight_decay", self.weight_decay, "a number of at least 0", least=0)
        number("ema", self.ema, "a decay in [0, 1)", least=0, below=1)
        check_distillation(self.distill, self.temperature)
        one_of("teacher", self.teacher, ("original", "ema"))
        whole("seed", self.seed, least=0)
        one_of("parameters", self.parameters, ("all", "norms", "added"))
        one_of("precision", self.precision, ("fp32", "bf16", "fp16"))


def trained_parameters(model: nn.Module, which: str) -> list[nn.Parameter]:
    """Freeze what a recipe leaves alone, and return what it trains.

    Raises:
        ValueError: Nothing is left to train.
    """
    chosen = []
    norms = {id(p) for part in model.modules() if "norm" in type(part).__name__.lower() for p in part.parameters()}
    for name, parameter in model.named_parameters():
        wanted = which == "all" or ".freq_" in name or (which == "norms" and id(parameter) in norms)
        parameter.requires_grad_(wanted)
        if wanted:
            chosen.append(parameter)
    if not chosen:
        raise ValueError(f"parameters: {which!r} leaves nothing to train; the reduction added no parameters, use 'all'")
    return chosen


def finetune(
    model: nn.Module,
    batches: Batches,
    steps_an_epoch: int,
    recipe: Recipe | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fine-tune a reduced classifier, in place; an interrupted run in ``out`` goes on from its last epoch.

    Args:
        model: With a reduction in force.
        batches: Gives an epoch's batches: called with (epoch, True) for training and (0, False) for evaluation. Under
            torchrun each process gives its own share.
        steps_an_epoch: Of training.
        recipe: How.
        out: Folder for the checkpoint of every epoch, ``result.json`` and the model (:func:`load_reduced` reads it).
        about: What else the run depends on (its data, its seed), so that one in ``out`` that differs is refused.
        progress: Told (step, steps, loss).

    Returns:
        ``accuracy`` (reduced, after), ``accuracy_before``, ``accuracy_original`` (unreduced), ``loss`` (the last) and
        ``steps``.

    Raises:
        ValueError: No reduction is in force, there are no batches, weights are no longer finite, or the run in ``out``
            has other settings or is damaged.
        TypeError: The recipe is none.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224", num_classes=2, depth=3, embed_dim=48).eval()
        >>> from thrifty.inference.token_reduction import FreqReduceConfig, reduce_tokens
        >>> reduction = reduce_tokens(vit, FreqReduceConfig((2,), 0.5))
        >>> batch = (torch.randn(2, 3, 224, 224), torch.tensor([0, 1]))
        >>> result = finetune(vit, lambda epoch, training: iter([batch]), 1, Recipe(epochs=1))
        >>> result["steps"]
        1

    Source:
        arXiv 2511.21477, section 4.
    """
    recipe = Recipe() if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe: expected a Recipe, got {type(recipe).__name__}")
    whole("steps_an_epoch", steps_an_epoch)
    reduction = reduction_of(model)
    if reduction is None:
        raise ValueError("model: no token reduction is in force; call reduce_tokens first")
    out = None if out is None else Path(out)
    device = next(model.parameters()).device
    distiller = Distiller(
        model, teacher=recipe.teacher, weight=recipe.distill, temperature=recipe.temperature, decay=recipe.ema
    )
    result: dict[str, Any] = {
        "accuracy_original": accuracy(distiller.teacher, batches(0, False)),
        "accuracy_before": accuracy(model, batches(0, False)),
    }
    parameters = trained_parameters(model, recipe.parameters)
    optimizer = torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)
    steps = recipe.epochs * steps_an_epoch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    mean = _averaged(model) if recipe.ema else None
    settings = {"recipe": asdict(recipe), "reduction": json.loads(reduction.config.to_json()), "about": about or {}}
    state = _State(out, settings | {"steps": steps}, model, optimizer, schedule, mean, distiller)
    first, loss = state.resume()
    wrapped: Any = nn.parallel.DistributedDataParallel(model) if _distributed() else model
    scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16" and device.type == "cuda")
    for epoch in range(first, recipe.epochs):
        model.train()
        step = -1
        for step, (x, y) in enumerate(batches(epoch, True)):
            draws = (recipe.seed, epoch, step, world()[0])
            with _seeded(draws, device), _autocast(recipe, device):
                loss = distiller.loss(x.to(device), y.to(device), logits_of(wrapped(x.to(device))))
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            distiller.update()
            if mean is not None:
                average(mean, model, min(recipe.ema, (1 + schedule.last_epoch) / (10 + schedule.last_epoch)))
            if progress is not None and first_process():
                progress(epoch * steps_an_epoch + step + 1, steps, float(loss.detach()))
        if step < 0:
            raise ValueError("batches: expected batches of images and labels to train on, got none")
        check_finite(model, f"epoch {epoch + 1}")
        state.save(epoch + 1, loss)
    if mean is not None:
        model.load_state_dict(mean.state_dict())
    model.eval()
    result |= {"accuracy": accuracy(model, batches(0, False)), "loss": float(loss.detach()), "steps": steps}
    if out is not None and first_process():
        reduction.save_pretrained(out, **({} if hasattr(type(model), "save_pretrained") else {"force": True}))
        write_whole(out / "result.json", json.dumps(result, indent=1) + "\n", force=True)
    return result


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]) -> float:
    """Return the share of right answers, over all processes."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    counted = torch.zeros(2, device=device, dtype=torch.float64)
    for x, y in batches:
        answer = logits_of(model(x.to(device))).argmax(dim=1)
        counted += torch.tensor([float((answer == y.to(device)).sum()), float(len(y))], device=device)
    model.train(training)
    if _distributed():
        torch.distributed.all_reduce(counted)
    return float(counted[0] / counted[1].clamp(min=1))


class _State:
    """What a run needs to go on: written whole after every epoch."""

    def __init__(
        self, out: Path | None, settings: Mapping[str, Any], model: nn.Module, optimizer: Any, schedule: Any,
        mean: nn.Module | None, distiller: Distiller,
    ) -> None:  # fmt: skip
        self.path = None if out is None else out / "training.pt"
        self.settings = json.dumps(settings)
        self.parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule}
        if mean is not None:
            self.parts["mean"] = mean
        if distiller.kind == "ema":
            self.parts["teacher"] = distiller.teacher

    def resume(self) -> tuple[int, Tensor]:
        """Return the epoch to go on with, and the last loss before it."""
        if self.path is None or not self.path.exists():
            if self.path is not None:
                refuse_existing(self.path.parent / "model.safetensors", force=False)
            return 0, torch.zeros(())
        held = load_saved(self.path, name="out")
        if not isinstance(held, dict) or not {"settings", "epoch", "loss", *self.parts} <= set(held):
            raise ValueError(f"out: expected the state of a run in {self.path}, got something else")
        theirs, ours = json.loads(held["settings"]), json.loads(self.settings)
        if theirs != ours:
            differ = [name for name in ours if theirs.get(name) != ours[name]]
            raise ValueError(
                f"out: the run in {self.path.parent} has other settings ({', '.join(differ)}); choose another folder"
            )
        for name, part in self.parts.items():
            part.load_state_dict(held[name])
        return int(held["epoch"]), held["loss"]

    def save(self, epoch: int, loss: Tensor) -> None:
        """Write the state after an epoch."""
        if self.path is None or not first_process():
            return
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"epoch": epoch, "loss": loss.detach(), "settings": self.settings}
        write_whole(self.path, lambda file: torch.save(state, file), force=True)


def _averaged(model: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(model).requires_grad_(False)


@contextmanager
def _seeded(draws: tuple[int, ...], device: torch.device) -> Iterator[None]:
    """Let dropout depend on these numbers alone, and leave the global generator as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(np.random.SeedSequence(draws).generate_state(1, np.uint64)[0]))
        yield


def _autocast(recipe: Recipe, device: torch.device) -> AbstractContextManager[Any]:
    if recipe.precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if recipe.precision == "bf16" else torch.float16)


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
