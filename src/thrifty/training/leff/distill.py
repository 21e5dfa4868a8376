"""Stand-ins for the layers that a client does not train, distilled from hidden states and attention maps.

    E = (1 - alpha) MSE(H_t, H_s) + alpha KL(A_t || A_s)

H is the output of a segment, A its attention probabilities. One pass of the teacher over the proxy set serves every
segment: a segment's input and target are hidden states of the same pass. Labels are never looked at. Shen et al.,
NeurIPS 2025, section 3 (compression).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.context import Segment
from thrifty.training.leff.importance import Batch
from thrifty.training.leff.layers import LayerView, on_device, shared_copy

#: Steps between two looks at whether the loss still falls, where a pass over the proxy set has fewer.
WINDOW = 10


@dataclass
class TeacherBatch:
    """What one pass of the teacher leaves of a batch.

    Args:
        hidden: Hidden states before each layer and behind the last, where they are needed.
        calls: With what else each layer is called: masks, positions, rotary tables.
        attention: Attention probabilities of the layers for which they are needed.
        valid: Which tokens are no padding; ``None``: all.
    """

    hidden: dict[int, Float[Tensor, "batch token width"]] = field(default_factory=dict)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    attention: dict[int, Float[Tensor, "batch head query key"]] = field(default_factory=dict)
    valid: Bool[Tensor, "batch token"] | None = None


def eager_copy(view: LayerView) -> LayerView:
    """Return a copy in evaluation mode that shares all tensors and computes attention maps.

    Raises:
        ValueError: The model's class cannot.
    """
    copy: Any = shared_copy(view, list(view.layers), range(view.num_layers))
    if hasattr(copy, "set_attn_implementation"):
        copy.set_attn_implementation("eager")
    return LayerView(copy.eval(), view.path)


@torch.no_grad()
def teacher_pass(
    view: LayerView, proxy: Sequence[Batch], segments: Collection[Segment], config: LeffConfig
) -> list[TeacherBatch]:
    """Run the teacher over the proxy set once, and keep what the segments need.

    Args:
        view: The teacher.
        proxy: Batches; labels are not used.
        segments: That are to be distilled.
        config: Whether attention maps are matched, and where.

    Raises:
        ValueError: Attention maps are needed and the model gives none.
    """
    teacher = eager_copy(view)
    device = next(view.model.parameters()).device
    bounds = {s.start for s in segments} | {s.start + s.length for s in segments}
    maps = {layer for s in segments for layer, _ in matched(s, config.attn_map)} if config.alpha else set()
    found = []
    for batch in proxy:
        inputs = {key: value for key, value in on_device(batch, device).items() if key != "labels"}
        found.append(_record(teacher, inputs, bounds, maps))
    return found


def _record(teacher: LayerView, inputs: Mapping[str, Any], bounds: set[int], maps: set[int]) -> TeacherBatch:
    kept = TeacherBatch()
    handles = []

    def before(index: int) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            if index in bounds:
                kept.hidden[index] = hidden.detach()
            kept.calls.append((args[1:], {k: v for k, v in kwargs.items() if k != "hidden_states"}))

        return hook

    def behind(index: int) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if index + 1 in bounds and index + 1 == teacher.num_layers:
                kept.hidden[index + 1] = first(output).detach()

        return hook

    for index, layer in enumerate(teacher.layers):
        handles += [
            layer.register_forward_pre_hook(before(index), with_kwargs=True),
            layer.register_forward_hook(behind(index)),
        ]
    try:
        with attention_maps({index: teacher.layers[index] for index in maps}) as seen:
            teacher.model(**inputs, **({"output_attentions": True} if maps and not _records(teacher.model) else {}))
    finally:
        for handle in handles:
            handle.remove()
    if lacking := maps - set(seen):
        raise ValueError(
            f"alpha: expected 0 for a model whose layers give no attention maps ({type(teacher.layers[0]).__name__} "
            f"{min(lacking)} gave none), got a weight above 0"
        )
    kept.attention = {index: value.detach() for index, value in seen.items()}
    mask, some = inputs.get("attention_mask"), next(iter(kept.hidden.values()))
    if mask is not None and mask.shape == some.shape[:2]:
        kept.valid = mask.bool()
    return kept


def distillation_loss(
    hidden: tuple[Tensor, Tensor],
    attention: Sequence[tuple[Tensor, Tensor]],
    alpha: float,
    valid: Bool[Tensor, "batch token"] | None = None,
) -> Tensor:
    """Return (1 - alpha) MSE of hidden states plus alpha KL of attention maps, over tokens that are no padding.

    Args:
        hidden: The teacher's and the student's.
        attention: Pairs of the teacher's and the student's maps; rows sum to 1.
        alpha: Weight of the maps.
        valid: Which tokens count; ``None``: all.
    """
    squares = (hidden[0].float() - hidden[1].float()).square().flatten(2).mean(2)
    mean: Tensor = squares.mean() if valid is None else (squares * valid).sum() / valid.sum().clamp_min(1)
    if not alpha or not attention:
        return mean * (1 - alpha)
    divergence = torch.stack([attention_divergence(t, s, valid) for t, s in attention]).mean()
    return (1 - alpha) * mean + alpha * divergence


def attention_divergence(
    teacher: Float[Tensor, "batch head query key"],
    student: Float[Tensor, "batch head query key"],
    valid: Bool[Tensor, "batch token"] | None = None,
) -> Tensor:
    """Return KL(A_t || A_s): summed over keys, averaged over queries, heads and examples; padding does not count."""
    teacher, student = teacher.float(), student.float()
    tiny = torch.finfo(torch.float32).tiny
    rows = (teacher * (teacher.clamp_min(tiny).log() - student.clamp_min(tiny).log())).sum(-1)
    if valid is None:
        return rows.mean()
    weights = valid[:, None, :].expand_as(rows)
    return torch.where(weights, rows, 0.0).sum() / weights.sum().clamp_min(1)


def matched(segment: Segment, attn_map: str) -> list[tuple[int, int]]:
    """Return which layer of the teacher is matched by which layer of the student (counted within it)."""
    if attn_map == "last":
        return [(segment.start + segment.length - 1, segment.depth - 1)]
    step = segment.length / segment.depth
    return [(segment.start + int((j + 1) * step + 1e-9) - 1, j) for j in range(segment.depth)]


def run_student(
    students: Sequence[nn.Module], segment: Segment, batch: TeacherBatch, maps: bool
) -> tuple[Tensor, dict[int, Tensor]]:
    """Run a stand-in on the segment's true input; return its output and the attention maps of its layers."""
    hidden = batch.hidden[segment.start]
    with attention_maps(dict(enumerate(students)) if maps else {}) as seen:
        for layer, source in zip(students, segment.sources, strict=True):
            args, kwargs = batch.calls[source]
            hidden = first(layer(hidden, *args, **kwargs))
    return hidden, dict(seen)


def segment_error(students: Sequence[nn.Module], segment: Segment, batch: TeacherBatch, config: LeffConfig) -> Tensor:
    """Return E of a stand-in on one batch."""
    output, seen = run_student(students, segment, batch, maps=config.alpha > 0)
    pairs = (
        [(batch.attention[layer], seen[place]) for layer, place in matched(segment, config.attn_map)]
        if config.alpha
        else []
    )
    target = batch.hidden[segment.start + segment.length]
    return distillation_loss((target, output), pairs, config.alpha, batch.valid)


def distill(
    students: nn.ModuleList, segment: Segment, batches: Sequence[TeacherBatch], config: LeffConfig
) -> list[float]:
    """Fit a stand-in to its segment, in place.

    Args:
        students: Its layers, with tensors of their own.
        segment: That it stands in for.
        batches: What :func:`teacher_pass` kept.
        config: Steps, rate, tolerance and weights.

    Returns:
        E at every step.
    """
    students.requires_grad_(True).eval()
    optimizer = torch.optim.AdamW(students.parameters(), lr=config.distill_lr, fused=True)
    window = max(len(batches), min(WINDOW, config.distill_steps))
    losses: list[float] = []
    for step in range(config.distill_steps):
        loss = segment_error(list(students), segment, batches[step % len(batches)], config)
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            last = segment.start + segment.length - 1
            raise ValueError(
                f"distill_lr: expected a rate at which the stand-in of layers {segment.start} to {last} converges, "
                f"got {config.distill_lr:g}: its loss is {losses[-1]} at step {step + 1}"
            )
        optimizer.zero_grad()
        if losses[-1] == 0:  # it is the segment itself
            break
        torch.autograd.backward(loss)
        optimizer.step()
        if len(losses) % window == 0 and len(losses) >= 2 * window:
            earlier, latest = (math.fsum(losses[-n * window :][:window]) for n in (2, 1))
            if earlier - latest < config.distill_tolerance * earlier:
                break
    students.requires_grad_(False)
    return losses


@contextmanager
def attention_maps(layers: Mapping[int, nn.Module]) -> Iterator[dict[int, Tensor]]:
    """Collect the attention probabilities of some layers while they run: what a submodule returns beside its output."""
    seen: dict[int, Tensor] = {}

    def hook_of(index: int) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            for part in output[1:] if isinstance(output, tuple) else ():
                if isinstance(part, Tensor) and part.ndim == 4 and part.is_floating_point():
                    seen[index] = part

        return hook

    handles = [
        module.register_forward_hook(hook_of(index)) for index, layer in layers.items() for module in layer.modules()
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def first(output: Any) -> Tensor:
    """Return a layer's hidden states, whether or not it returns a tuple."""
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden


def _records(model: nn.Module) -> bool:
    """Tell whether a model's attention modules return their maps without being asked."""
    base = getattr(model, "base_model", model)
    return bool(getattr(base, "_can_record_outputs", None)) or not hasattr(model, "config")
