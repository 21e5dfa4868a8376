"""Training two small towers with one of the losses, and what is measured on the way and at the end."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from thrifty.training.amorlip.evaluation.retrieval import recalls
from thrifty.training.amorlip.evidence.contenders import Contender, contender
from thrifty.training.amorlip.evidence.pictures import Split, Towers, Workload, batches, shifted
from thrifty.training.amorlip.loss import AmorLIPLoss
from thrifty.training.amorlip.partition import Coefficients, auto_pos_coef, batch_log_partition, estimate_log_partition
from thrifty.training.amorlip.rivals import NeuCLIPLoss, SogCLRLoss
from thrifty.training.amorlip.temperature import clamp_logit_scale, temperature_param_groups

#: Steps between two looks at the exact partition functions.
PROBE = 50


def train(
    name: str,
    lr: float,
    data: Workload,
    *,
    batch: int,
    steps: int,
    seed: int,
    held_out: str = "test",
    probe: bool = False,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train one contender: AdamW, a cosine to zero after a short warm-up, the same batches for all of one seed.

    Args:
        name: Of the contender.
        lr: Peak rate.
        data: The emoji.
        batch: Pairs a step.
        steps: Of training.
        seed: Of the towers, and of the order and the shifts of the data.
        held_out: The split that is looked at: ``"validation"`` to tune, ``"test"`` to report.
        probe: Look at the errors of the partition functions in the second half of the run.
        device: Where.

    Returns:
        ``r1``, ``r5``, ``r10`` (percent, the mean of both directions and styles), ``zero_shot`` (percent), ``errors``
        (mean squared error of log Z, by estimator), ``weight`` (the largest Σ_j w_ij seen).
    """
    made = contender(name)
    split = data.train
    per_epoch = len(split) // batch
    loss = made.make(len(split), per_epoch, max(1, math.ceil(steps / per_epoch))).to(device)
    towers = Towers(data.vocabulary, seed, made.scale, made.bias).to(device)
    optimizer, base = _optimizer(towers, lr, made)
    generator = torch.Generator().manual_seed(seed)
    errors: dict[str, list[float]] = {}
    weight = 0.0
    for step, places in enumerate(batches(batch, len(split), steps, generator)):
        if step % per_epoch == 0 and hasattr(loss, "set_epoch"):
            loss.set_epoch(step // per_epoch, per_epoch)  # type: ignore[operator]
        style = torch.randint(2, (batch,), generator=generator)
        images = shifted(split.images[style, places], generator).to(device)
        for group, rate in zip(optimizer.param_groups, base, strict=True):
            group["lr"] = rate * schedule(step, steps)
        u, v = towers.embed_images(images), towers.embed_texts(split.words[places].to(device))
        scale = towers.logit_scale.exp()
        extra = {"index": places.to(device)} if getattr(loss, "needs_index", False) else {}
        value = loss(u, v, scale, towers.logit_bias, **extra)
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(towers.parameters(), 1.0)
        if probe and step >= steps // 2 and step % PROBE == 0:
            for estimator, error in _errors(loss, towers, split, u, v, scale, places).items():
                errors.setdefault(estimator, []).append(error)
        if isinstance(loss, AmorLIPLoss) and step % 10 == 0:
            weight = max(weight, loss.diagnostics()["weight_max"])
        optimizer.step()
        if made.learned:
            clamp_logit_scale(towers)
    found = evaluate(towers.eval(), getattr(data, held_out), data.class_words, device)
    return found | {"errors": {key: sum(values) / len(values) for key, values in errors.items()}, "weight": weight}


def schedule(step: int, steps: int) -> float:
    """Linear warm-up over a twentieth of the steps, then a cosine to zero."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(1, steps - warm))


def _optimizer(towers: Towers, lr: float, made: Contender) -> tuple[torch.optim.Optimizer, list[float]]:
    for parameter in (towers.logit_scale, towers.logit_bias):
        if parameter is not None:
            parameter.requires_grad_(made.learned)
    optimizer = torch.optim.AdamW(temperature_param_groups(towers, lr, weight_decay=0.1), betas=(0.9, 0.98))
    return optimizer, [group["lr"] for group in optimizer.param_groups]


@torch.no_grad()
def _errors(
    loss: nn.Module, towers: Towers, split: Split, u: Tensor, v: Tensor, scale: Tensor, places: Tensor
) -> dict[str, float]:
    """Mean squared error of log Z of the batch's images against all training names, by estimator."""
    u, v, scale = u.detach(), v.detach(), scale.detach()
    exact = estimate_log_partition(u, towers.embed_texts(split.words.to(u.device)), scale)
    kappa = auto_pos_coef(len(u), len(split))
    found = {"batch": batch_log_partition(u, v, scale, coefficients=Coefficients(kappa)).mean_scale()[0]}
    if isinstance(loss, AmorLIPLoss) and loss.log_lambda is not None:
        own = loss.amortizer.coefficients(len(u))
        found["online network"] = loss.amortizer.predict(u, v, scale, which="online")[0]
        found["lambda"] = loss.log_lambda[0] - math.log(own.count(len(u)))
    elif isinstance(loss, SogCLRLoss):  # relative to the pair, and of the others only
        found["lambda"] = loss.log_u[0, places] + scale * (u * v).sum(1)
    elif isinstance(loss, NeuCLIPLoss):
        found["lambda"] = loss.image(u, scale)
    return {name: float((value - exact).square().mean()) for name, value in found.items()}


@torch.no_grad()
def evaluate(towers: Towers, split: Split, class_words: Tensor, device: str) -> dict[str, float]:
    """Retrieval in both directions and styles, and zero-shot classification into sub-categories, in percent."""
    texts = towers.embed_texts(split.words.to(device))
    names = towers.embed_texts(class_words.to(device))
    seen: dict[str, list[float]] = {}
    for style in split.images:
        images = torch.cat([towers.embed_images(part.to(device)) for part in style.split(256)])
        found = recalls(images, texts)
        for k in (1, 5, 10):
            seen.setdefault(f"r{k}", []).append(
                50 * (found[f"image_retrieval_recall@{k}"] + found[f"text_retrieval_recall@{k}"])
            )
        hits = (images @ names.T).argmax(1).cpu() == split.classes
        seen.setdefault("zero_shot", []).append(100 * float(hits.float().mean()))
    return {name: sum(values) / len(values) for name, values in seen.items()}
