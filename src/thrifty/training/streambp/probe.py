"""What is checked when streaming is switched on: that a few tokens give the same with it and without.

A family that mixes positions outside attention, keeps more than keys and values, or treats its logits in a way of its
own shows here, before anything is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from thrifty.training.streambp.decoder_layer import UnstreamableError

if TYPE_CHECKING:
    from thrifty.training.streambp.model import StreamBPHandle

#: Tokens of the probe, and of its chunks: neither divides the other, and a kernel of four reaches over the seam.
LENGTH, CHUNK = 11, 4


def check_layers(model: Any, handle: StreamBPHandle) -> None:
    """Hold every layer's output on chunks against its output on the whole.

    Raises:
        ValueError: They differ; the message names the layer's class.
    """
    ids = _ids(model)
    if ids is None:
        return
    with _evaluating(model), torch.no_grad():
        whole = _layer_outputs(model, handle, ids)
        settings, handle.config = handle.config, replace(handle.config, layer_chunk_size=CHUNK, every_n_layers=1)
        try:
            with handle.forced_on():
                chunked = _layer_outputs(model, handle, ids)
        except UnstreamableError:
            raise
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
            name = type(handle.layers[0]).__name__
            raise UnstreamableError(
                f"{name} cannot be streamed: on chunks it fails with {type(error).__name__}: {error}"
            ) from error
        finally:
            handle.config = settings
    for (layer, a), (_, b) in zip(whole, chunked, strict=True):
        if _differ(a, b):
            raise UnstreamableError(
                f"{type(layer).__name__} cannot be streamed: on chunks it gives another result than on the whole "
                "(it mixes positions outside causal attention)"
            )


def check_head(model: Any, handle: StreamBPHandle) -> None:
    """Hold the streamed loss against the model's own.

    Raises:
        ValueError: They differ; the message names the model's class.
    """
    ids = _ids(model)
    if ids is None:
        return
    with _evaluating(model):
        with torch.no_grad():
            own = model(input_ids=ids, labels=ids, use_cache=False).loss
        with handle.forced_on(), torch.enable_grad():
            streamed = model(input_ids=ids, labels=ids, use_cache=False).loss
    if _differ(own, streamed.detach()):
        raise UnstreamableError(
            f"{type(model).__name__}'s loss is {float(own):.6g}, streamed {float(streamed):.6g}: its head is more than "
            "a linear map with scale and soft-cap; use head='own' to stream its layers only"
        )


def _ids(model: Any) -> Tensor | None:
    """Return a few tokens, or nothing where the weights are not there to be used (on the meta device)."""
    weight: Tensor = model.get_input_embeddings().weight
    if weight.device.type == "meta":
        return None
    return (torch.arange(LENGTH, device=weight.device)[None] * 7 + 3) % int(model.config.get_text_config().vocab_size)


def _layer_outputs(model: Any, handle: StreamBPHandle, ids: Tensor) -> list[tuple[nn.Module, Tensor]]:
    """Return what the layers gave, in the order in which they ran (some models run them more than once)."""
    found: list[tuple[nn.Module, Tensor]] = []

    def keep(layer: nn.Module, __: Any, output: Any) -> None:
        found.append((layer, (output[0] if isinstance(output, tuple) else output).detach()))

    hooks = [layer.register_forward_hook(keep) for layer in handle.layers]
    try:
        model(input_ids=ids, use_cache=False)  # as a whole: FSDP gathers what belongs to no layer only then
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _differ(a: Tensor, b: Tensor) -> bool:
    tolerance = 1e3 * torch.finfo(a.dtype).eps if a.dtype == torch.float32 else 1e-1 if a.dtype.itemsize == 2 else 1e-6
    return bool((a - b).abs().max() > tolerance * (1e-6 + a.abs().max()))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off inside the block, module by module as it was.

    Not in quantised layers: bitsandbytes repacks theirs for inference when it meets one that is not in training.
    """
    before = {module: module.training for module in model.modules() if not _quantised(module)}
    for module in before:
        module.training = False
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def _quantised(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and not weight.is_floating_point()
