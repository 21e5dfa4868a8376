"""What noise on the high- or the low-frequency tokens does to a model's output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.checks import number, whole
from thrifty.inference.token_reduction import metrics
from thrifty.inference.token_reduction.analyze import watch_attention
from thrifty.inference.token_reduction.attention import attend_and_score
from thrifty.inference.token_reduction.hosts import find_host
from thrifty.inference.token_reduction.inputs import check_images
from thrifty.inference.token_reduction.partition import begin
from thrifty.inference.token_reduction.patch import reduction_of


def noise_sensitivity(
    model: nn.Module,
    x: Float[Tensor, "batch channel height width"],
    judge: Callable[[Any], Float[Tensor, " batch"]],
    *,
    layer: int,
    share: float = 0.25,
    sigma: float = 0.5,
    trials: int = 10,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Add white noise to the high- or to the low-frequency tokens behind a block, and see what it does to the output.

    Args:
        model: A vision transformer without a reduction in force.
        x: Images.
        judge: Takes the model's output and returns one number an image, higher is better (1 for a right answer).
        layer: Whose output is disturbed, numbered from 1; the score is that of its attention.
        share: How many of the patches are disturbed: the highest, or the lowest, ``floor(n share)``.
        sigma: Of the noise, in standard deviations of the tokens.
        trials: Draws.
        seed: Of the draws.

    Returns:
        ``"high"`` and ``"low"``: what ``judge`` loses on average, one number a trial.

    Raises:
        ValueError: The layer is not there, another setting is out of range, these are no images, or a reduction is in
            force.
        TypeError: No plain vision transformer is in the model, or ``judge`` returns something else than a tensor.

    Example:
        >>> import timm
        >>> vit = timm.create_model("vit_tiny_patch16_224", depth=3, embed_dim=48).eval()
        >>> x = torch.randn(2, 3, 224, 224)
        >>> lost = noise_sensitivity(vit, x, lambda out: out.softmax(1).amax(1), layer=2, trials=1)
        >>> sorted(lost), len(lost["high"])
        (['high', 'low'], 1)

    Source:
        arXiv 2511.21477, section 2 (additive white Gaussian noise).
    """
    host = find_host(model)
    check_images(x)
    if reduction_of(model) is not None:
        raise ValueError("model: a token reduction is in force; remove() it first: noise goes on the full sequence")
    if whole("layer", layer) > len(host.blocks):
        raise ValueError(f"layer: expected 1 to {len(host.blocks)}, got {layer}")
    whole("trials", trials)
    if whole("seed", seed, least=0) >= 2**63:
        raise ValueError(f"seed: expected a whole number from 0, below 2**63, got {seed}")
    number("sigma", sigma, "a number of at least 0", least=0)
    if not 0 < number("share", share, "a number in (0, 1]") <= 1:
        raise ValueError(f"share: expected a number in (0, 1], got {share}")
    rng = torch.Generator().manual_seed(seed)
    score: list[Tensor] = []
    grid: list[tuple[int, int]] = []

    def on_patches(_: Any, __: Any, maps: Tensor) -> None:
        grid.append((int(maps.shape[-2]), int(maps.shape[-1])))

    def on_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        score.append(attend_and_score(query, key, value, scale)[1][:, host.prefix :])

    def disturb(_: Any, __: Any, out: Any) -> Any:
        sequence = out[0] if isinstance(out, tuple) else out
        ranked = score[-1] if kind == "low" else -score[-1]
        chosen = metrics.low_frequency_set(ranked, share) + host.prefix
        noise = torch.randn(sequence.shape, generator=rng).to(sequence) * sigma * sequence.std()
        mask = torch.zeros(sequence.shape[:2], device=sequence.device).scatter(1, chosen, 1.0)
        noisy = sequence + noise * mask.unsqueeze(-1).to(sequence.dtype)
        return (noisy, *out[1:]) if isinstance(out, tuple) else noisy

    def judged() -> Tensor:
        found = judge(model(x))
        if not isinstance(found, Tensor) or found.shape != x.shape[:1]:
            raise TypeError(f"judge: expected a tensor of {len(x)} numbers, one an image, got {found!r}")
        return found.float().mean()

    lost: dict[str, list[float]] = {"high": [], "low": []}
    with torch.no_grad():
        clean = judged()
        hooks = [
            host.patches.register_forward_hook(on_patches),
            *watch_attention(host, layer - 1, lambda _: begin(len(x), grid[-1], host.prefix, x.device), on_attention),
            host.blocks[layer - 1].register_forward_hook(disturb),
        ]
        try:
            for kind in lost:  # noqa: PLC0206
                for _ in range(trials):
                    lost[kind].append(float(clean - judged()))
        finally:
            for hook in hooks:
                hook.remove()
    return lost
