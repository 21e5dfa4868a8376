"""Finding the vision transformer in a model, and refusing what cannot be reduced."""

from __future__ import annotations

from typing import Any

from torch import nn

from thrifty.inference.token_reduction.hosts import open_clip, timm, transformers
from thrifty.inference.token_reduction.hosts.host import Host

#: Blocks that have the attributes of a plain one and compute something else.
OTHER_BLOCKS = frozenset(
    {"ResPostBlock", "ParallelScalingBlock", "DiffParallelScalingBlock", "ParallelThingsBlock", "EvaBlockPostNorm"}
)


def find_host(model: nn.Module) -> Host:
    """Return the vision transformer in a model, whichever of the known layouts it has.

    Args:
        model: A timm ``VisionTransformer`` or ``Eva``, a transformers ViT, DeiT, DINOv2, DINOv3, CLIP or SigLIP vision
            model (with or without a head), an open_clip vision tower, or something that holds exactly one of these as a
            submodule.

    Raises:
        TypeError: There is none, or more than one; the message lists what was looked for.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch module, got {type(model).__name__}")
    found: list[Host] = []
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside:
            continue
        host = timm.find(module) or transformers.find(module) or open_clip.find(module)
        if host is not None:
            found.append(host)
            inside |= {id(part) for part in module.modules()}
    if len(found) == 1:
        _refuse_unfit(found[0])
        return found[0]
    if found:
        raise TypeError(f"model: {type(model).__name__} holds {len(found)} vision transformers; pass the one to reduce")
    raise TypeError(
        f"model: {type(model).__name__} is no plain vision transformer. Looked for timm's (patch_embed.proj, blocks "
        f"with {', '.join(timm.TimmBlock.needs)}), transformers' (embeddings, layers with "
        f"{', '.join(transformers.TransformersBlock.needs)}) and open_clip's (conv1, transformer.resblocks with "
        f"{', '.join(open_clip.OpenClipBlock.needs)}). Hierarchical and windowed models (Swin, ConvNeXt, SAM, ViTDet) "
        "have no constant grid of tokens and cannot be reduced"
    )


def _refuse_unfit(host: Host) -> None:
    """Refuse what has the attributes and computes something else."""
    trunk: Any = host.trunk
    if any(_set(trunk, name) for name in ("rel_pos_bias", "shared_rel_pos")):
        raise TypeError(
            f"model: {type(trunk).__name__} is not a plain pre-norm block after another: relative positions belong to "
            "pairs of places in the whole grid and cannot be reduced"
        )
    if _set(getattr(trunk, "patch_embed", None), "backbone"):
        raise TypeError(
            "model: its patches come from a convolutional backbone; Looked for timm's plain patch_embed.proj"
        )
    for index, block in enumerate(host.blocks, start=1):
        name, attn = type(block).__name__, getattr(block, "attn", None)
        odd = [part for part in ("rope", "window_size", "cpe", "attn_scale", "diff") if getattr(block, part, None)]
        odd += [part for part in ("rope", "rel_pos_h", "relative_position_bias_table", "lambda_q1") if _set(attn, part)]
        if getattr(attn, "num_kv_groups", 1) > 1:
            odd.append("num_kv_heads")
        if name in OTHER_BLOCKS or odd:
            raise TypeError(
                f"model: block {index} ({name}) is not a plain pre-norm block: {', '.join(odd) or name}. Windowed "
                "attention, relative positions, shared heads and parallel or post-norm blocks cannot be reduced"
            )


def _set(owner: Any, name: str) -> bool:
    return getattr(owner, name, None) is not None
