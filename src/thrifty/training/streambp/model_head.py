"""The ``forward`` of a streaming model: its own, but for the head, which yields the loss without the logits.

The model's own forward function runs with one position's logits (``logits_to_keep=1``), so that whatever a family does
around its backbone is done; the hidden states are taken on their way to the head. Families scale and cap their logits
by settings of their configuration; a check at enable time holds the loss against the model's own.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from thrifty.training.streambp.chunks import head_chunk
from thrifty.training.streambp.cross_entropy import streamed_linear_cross_entropy
from thrifty.training.streambp.decoder_layer import UnstreamableError
from thrifty.training.streambp.inputs import Rows, check_ids, shifted_rows
from thrifty.training.streambp.logits import LogitShape
from thrifty.training.streambp.module_head import module_statistics
from thrifty.training.streambp.token_logps import TokenStatistics, spread, token_statistics

IGNORED = -100


def logit_shape(config: Any, temperature: float = 1.0) -> LogitShape:
    """Read from a configuration what a family does to its logits."""
    text = config.get_text_config()
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        if (scale := getattr(text, name, None)) is not None:
            break
    else:
        divisor = getattr(text, "logits_scaling", None)
        multiplies = divisor is not None and text.model_type == "hyperclovax"
        scale = 1.0 if divisor is None else divisor if multiplies else 1 / divisor
    return LogitShape(float(scale), getattr(text, "final_logit_softcapping", None), temperature)


@dataclass(frozen=True)
class TRLHead:
    """What a trainer of TRL asks of the head.

    Args:
        temperature: Divides the logits.
        in_float32: Multiply in float32, whatever autocast says.
        foresee: The loss will be a sum of log-probabilities; see ``token_statistics``.
    """

    temperature: float = 1.0
    in_float32: bool = False
    foresee: bool = False


class StreamedForward:
    """Builds the method that takes the place of a model's ``forward``."""

    @staticmethod
    def bind(model: Any, handle: Any) -> types.MethodType:
        """Return the method; it keeps the signature, which trainers and ``generate`` read."""
        own = model.forward
        signature = inspect.signature(own)
        if "logits_to_keep" not in signature.parameters:
            raise UnstreamableError(
                f"{type(model).__name__} has no logits_to_keep, so its head cannot be streamed; use head='own'"
            )

        @wraps(type(model).forward)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            fused = kwargs.get("fused_lm_head", False)
            given = kwargs.get("labels") if kwargs.get("labels") is not None else kwargs.get("shift_labels")
            if not (self.training or handle.forced) or not torch.is_grad_enabled() or given is None:
                return own(*args, **kwargs)
            if fused and handle.trl is None:
                return own(*args, **kwargs)
            return _trl_output(self, handle, own, args, kwargs) if fused else _loss(self, handle, own, args, kwargs)

        return types.MethodType(forward, model)


def _run(model: Any, handle: Any, own: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Any, Tensor]:
    """Run the model without its loss; return its output and the hidden states before the head."""
    kept: list[Tensor] = []

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        kept.append(output[0] if isinstance(output, tuple) else output.last_hidden_state)

    hook = handle.decoder.register_forward_hook(keep)
    try:
        output = own(*args, **{**kwargs, "logits_to_keep": 1})
    finally:
        hook.remove()
    if len(kept) != 1:
        raise UnstreamableError(f"{type(model).__name__}: expected one call of its decoder, saw {len(kept)}")
    return output, kept[0]


def _loss(model: Any, handle: Any, own: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute the loss that the model's own ``forward`` would return."""
    labels, shifted = kwargs.pop("labels", None), kwargs.pop("shift_labels", None)
    items = kwargs.pop("num_items_in_batch", None)
    ignored = kwargs.pop("ignore_index", IGNORED)
    if kwargs.get("logits_to_keep"):
        raise ValueError("logits_to_keep: a streamed loss scores every position that has a label; leave it out")
    as_tuple = kwargs.pop("return_dict", None) is False
    output, hidden = _run(model, handle, own, args, kwargs)
    targets, shift = (labels, True) if shifted is None else (shifted, False)
    if targets.shape != hidden.shape[:2]:
        raise ValueError(f"labels: expected one a position, {tuple(hidden.shape[:2])}, got {tuple(targets.shape)}")
    targets = targets.to(hidden.device)
    loss = _cross_entropy(model, handle, hidden, targets, shift, items, ignored)
    loss = _with_router_loss(model, output, loss)
    answer = type(output)(**{**output, "loss": loss, "logits": None})
    return answer.to_tuple() if as_tuple else answer


def _with_router_loss(model: Any, output: Any, loss: Tensor) -> Tensor:
    """Add what a mixture of experts asks for balance between them."""
    if getattr(output, "aux_loss", None) is None:
        return loss
    coefficient = getattr(model, "router_aux_loss_coef", None)
    if coefficient is None:
        coefficient = getattr(model.config.get_text_config(), "router_aux_loss_coef", 0.0)
    total: Tensor = loss + coefficient * output.aux_loss.to(loss.device)
    return total


def _cross_entropy(
    model: Any, handle: Any, hidden: Tensor, targets: Tensor, shift: bool, items: Any, ignored: int
) -> Tensor:
    weight, bias = plain_head(model)
    shape = logit_shape(model.config)
    if weight is not None:
        loss = streamed_linear_cross_entropy(
            hidden, weight, targets, bias=bias, shift=shift, num_items_in_batch=items, ignore_index=ignored,
            chunk_size=handle.config.head_chunk_size, logit_scale=shape.scale, softcap=shape.softcap,
            temperature=shape.temperature, accum_dtype=handle.config.torch_accum_dtype,
        )  # fmt: skip
        assert isinstance(loss, Tensor)
        return loss
    rows = shifted_rows(targets, ignored, shift)
    check_ids(targets, targets != ignored, model.config.get_text_config().vocab_size)
    found = _by_module(model, handle, hidden, rows, shape)
    return -found.logps.sum() / (max(len(rows), 1) if items is None else items)


def _by_module(model: Any, handle: Any, hidden: Tensor, rows: Rows, shape: LogitShape) -> TokenStatistics:
    """Score rows by calling the head, which is more than a weight."""
    vocabulary = model.config.get_text_config().vocab_size
    chunk = head_chunk(handle.config.head_chunk_size, len(rows), hidden.shape[-1], vocabulary)
    return module_statistics(model.get_output_embeddings(), hidden, rows, shape, chunk)


def plain_head(model: Any) -> tuple[Tensor | None, Tensor | None]:
    """Return weight and bias of the head if it is a plain linear map, whole on this process; else nothing.

    Adapters and quantised weights come as subclasses, with a ``forward`` of their own.
    """
    head = model.get_output_embeddings()
    if getattr(type(head), "forward", None) is not nn.Linear.forward or "forward" in head.__dict__:
        return None, None
    if head._forward_hooks or head._forward_pre_hooks or hasattr(head, "parametrizations"):
        return None, None
    weight: Any = head.weight
    bias: Any = head.bias
    if hasattr(weight, "full_tensor"):  # a shard (DTensor): gathered once, not once a chunk
        weight, bias = weight.full_tensor(), None if bias is None else bias.full_tensor()
    return weight, bias


def _trl_output(model: Any, handle: Any, own: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Answer a call with ``fused_lm_head=True``, as TRL's trainers make it."""
    from trl.trainer.utils import FusedCausalLMOutput

    labels, shifted = kwargs.pop("labels", None), kwargs.pop("shift_labels", None)
    items = kwargs.pop("num_items_in_batch", None)
    kwargs.pop("fused_lm_head")
    output, hidden = _run(model, handle, own, args, kwargs)
    hidden, targets = (hidden[:, :-1], labels[:, 1:]) if shifted is None else (hidden, shifted)
    targets = targets.to(hidden.device)
    rows = shifted_rows(targets, IGNORED, False)
    found = _trl_statistics(model, handle, hidden, rows)
    loss = -found.logps.sum() / (max(len(rows), 1) if items is None else items)
    return FusedCausalLMOutput(
        loss=_with_router_loss(model, output, loss),
        aux_loss=getattr(output, "aux_loss", None),
        **_trl_fields(found, rows, targets),
    )


def _trl_statistics(model: Any, handle: Any, hidden: Tensor, rows: Rows) -> TokenStatistics:
    """Score rows in the precision that the trainer asks for."""
    shape = logit_shape(model.config, handle.trl.temperature)
    with contextlib.ExitStack() as stack:
        if handle.trl.in_float32:
            stack.enter_context(torch.autocast(hidden.device.type, enabled=False))
            hidden = hidden.float()
        weight, bias = plain_head(model)
        if weight is None:
            return _by_module(model, handle, hidden, rows, shape)
        return token_statistics(
            hidden, weight, bias, rows, shape, chunk_size=handle.config.head_chunk_size,
            accum_dtype=handle.config.torch_accum_dtype, with_entropy=True, with_squares=True,
            foresee_uniform=handle.trl.foresee,
        )  # fmt: skip


def _trl_fields(found: TokenStatistics, rows: Rows, targets: Tensor) -> dict[str, Tensor]:
    size = tuple(targets.shape)
    assert found.entropies is not None
    assert found.log_sum_sq is not None
    return {
        "log_probs": spread(found.logps, rows, size),
        "entropy": spread(found.entropies, rows, size),
        "log_sum_sq_probs": spread(found.log_sum_sq, rows, size),
        "mean_logits": spread(found.mean_logits, rows, size),
        "is_top1": spread(found.is_top1, rows, size),
        "label_mask": targets != IGNORED,
    }
