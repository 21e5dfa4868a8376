"""Reading a model: its configuration, and the shapes of its weights, counted without memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty.advise.rehearsal import LAYERS, Mode, Phases, build, decoder_layers, rehearse
from thrifty.inference.speculation import MoEShape
from thrifty.inference.speculation.shapes import profiles

#: Bytes of a number.
WIDTH = {"bfloat16": 2, "float16": 2, "float32": 4}
#: Fields without which a configuration would silently describe its class's default model.
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", **{name: name for name in WIDTH}}


@dataclass(frozen=True)
class Decoder:
    """A causal language model, counted from its configuration.

    Args:
        name: For the reader.
        config: The configuration.
        parameters: All weights (a tied head once).
        outside: Weights outside of the layers: embedding, head, last norm.
        matrices: (rows, columns) of the weights of linear layers within the layers, experts one by one.
        shape: What a step reads: weights by when they are read, cache of keys and values.
        positions: Rows of a learned table of positions, which no sequence can outgrow; 0: there is none.
    """

    name: str
    config: Any
    parameters: int
    outside: int
    matrices: Mapping[tuple[int, int], int]
    shape: MoEShape
    positions: int = 0
    _rehearsed: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def text(self) -> Any:
        """The part of the configuration that describes the decoder."""
        return self.config.get_text_config()

    @property
    def layers(self) -> int:
        """Layers."""
        return int(self.text.num_hidden_layers)

    @property
    def layer_parameters(self) -> float:
        """Weights of a layer, on average."""
        return (self.parameters - self.outside) / self.layers

    @property
    def active(self) -> float:
        """Weights that one token is multiplied with (the input embedding is looked up, not multiplied)."""
        return float(self.shape.dense_params + self.shape.top_k * self.shape.expert_params)

    @cached_property
    def attention_width(self) -> int:
        """Heads times their width, of queries."""
        heads = self.text.num_attention_heads
        return int(heads * (getattr(self.text, "head_dim", None) or self.text.hidden_size // heads))

    def phases(
        self, batch: int, length: int, *, mode: Mode, dtype: str, lora_rank: int = 0, fused_head: bool = False
    ) -> Phases:
        """Rehearse a step of its first layers, once; see :func:`thrifty.advise.rehearsal.rehearse`."""
        key = (batch, length, mode, dtype, lora_rank, fused_head)
        if key not in self._rehearsed:
            self._rehearsed[key] = rehearse(
                self.config, batch, length, mode=mode, dtype=dtype, lora_rank=lora_rank, fused_head=fused_head
            )
        found: Phases = self._rehearsed[key]
        return found


@dataclass(frozen=True)
class VisionTransformer:
    """A plain vision transformer: what its cost depends on."""

    name: str
    parameters: int
    layers: int
    hidden: int
    patch: int
    image_size: int


def read_decoder(source: str | Path | Any) -> Decoder:
    """Read a causal language model.

    Args:
        source: A folder with a ``config.json``, such a file, the name of a configuration that comes with the package
            (``"qwen3-30b-a3b"``), or a ``PretrainedConfig``.

    Raises:
        ValueError: There is no such file, its model type is unknown, or a field is missing.
        ImportError: transformers is not installed.

    Example:
        >>> from transformers import LlamaConfig
        >>> tiny = read_decoder(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        ...     num_attention_heads=4))
        >>> tiny.parameters, tiny.layers, tiny.matrices[32, 64]
        (24736, 2, 2)
    """
    config: Any
    config, name = read_config(source) if isinstance(source, str | Path) else (source, source.model_type)
    if getattr(config, "quantization_config", None):
        raise ValueError(
            f"model: {name} has quantised weights, which are not counted: give the config that it came from"
        )
    encodes = getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", None) is False
    if encodes or not hasattr(config.get_text_config(), "num_hidden_layers"):
        raise ValueError(f"model: {name} ({config.model_type}) encodes: expected a causal language model")
    try:
        model = build(config)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"model: {name} cannot be built as a causal language model: {error}") from error
    inside = [parameter for layer in decoder_layers(model) for parameter in layer.parameters()]
    matrices: dict[tuple[int, int], int] = {}
    for parameter in inside:
        if parameter.ndim >= 2 and min(parameter.shape[-2:]) > 1:
            rows, columns = int(parameter.shape[-2]), int(parameter.shape[-1])
            matrices[rows, columns] = matrices.get((rows, columns), 0) + parameter.numel() // (rows * columns)
    total = sum(parameter.numel() for parameter in model.parameters())
    outside = total - sum(parameter.numel() for parameter in inside)
    fields = config.to_dict()
    if not fields.get("text_config"):  # families that call their fields otherwise
        fields |= {field: getattr(config, field) for field in NEEDED}
    text = config.get_text_config()
    heads, shared = text.num_attention_heads, getattr(text, "num_key_value_heads", None)
    if shared and heads % shared:
        raise ValueError(f"model: {name} has {heads} heads of queries, no multiple of its {shared} of keys")
    return Decoder(
        name,
        config,
        total,
        outside,
        matrices,
        MoEShape.from_config({**fields, "_name_or_path": name}),
        _positions(model, text),
    )


def _positions(model: Any, text: Any) -> int:
    """Return the sequence that a learned table of positions has rows for."""
    most = getattr(text, "max_position_embeddings", None)
    words = model.get_input_embeddings()
    tables = [
        module.num_embeddings for module in model.modules() if hasattr(module, "num_embeddings") and module is not words
    ]
    return int(most) if most and any(most <= rows <= most + 2 for rows in tables) else 0  # OPT's begins at row 2


def read_vision(name: str) -> VisionTransformer:
    """Read a vision transformer of timm, by name, without its weights.

    Raises:
        ValueError: timm has no such model, or it is no plain vision transformer.
        ImportError: timm is not installed.
    """
    timm, torch = require("timm", extra="vision"), require("torch", extra="vision")
    if not timm.is_model(name):
        raise ValueError(f"model: expected a config.json, a folder with one, or a name of timm's, got {name!r}")
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False)
    blocks, patches = getattr(model, "blocks", None), getattr(model, "patch_embed", None)
    if blocks is None or patches is None or not hasattr(model, "embed_dim"):
        raise ValueError(f"model: expected a plain vision transformer, and {name} is a {type(model).__name__}")
    return VisionTransformer(
        name,
        sum(parameter.numel() for parameter in model.parameters()),
        len(blocks),
        int(model.embed_dim),
        int(patches.patch_size[0]),
        int(patches.img_size[0]),
    )


def dtype_of(name: str) -> str:
    """Return torch's name of a precision.

    Raises:
        ValueError: It is none of bf16, fp16, fp32.
    """
    if name not in DTYPES:
        raise ValueError(f"--dtype: expected one of bf16, fp16, fp32, got {name!r}")
    return DTYPES[name]


def read_config(source: str | Path) -> tuple[Any, str]:
    """Return a configuration and a name, from a file, a folder or the profiles that come with the package."""
    transformers = require("transformers", extra="llm")
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if path.is_file():
        try:
            fields = json.loads(path.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"model: {path} is not JSON ({error})") from None
        if not isinstance(fields, dict):
            raise ValueError(f"model: {path} holds a {type(fields).__name__}, expected an object")
        name = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    elif str(source) in profiles():
        fields, name = dict(profiles()[str(source)]), str(source)
    else:
        raise ValueError(
            f"model: there is no {path}: expected a folder with a config.json, such a file, or one of "
            f"{', '.join(profiles())}"
        )
    kind = fields.pop("model_type", None)
    if kind is None:
        raise ValueError(f"model: {path} lacks the field 'model_type'")
    if kind not in transformers.CONFIG_MAPPING:
        raise ValueError(f"model: transformers {transformers.__version__} knows no model type {kind!r}")
    fields.pop("transformers_version", None)
    kind_of_config = transformers.CONFIG_MAPPING[kind]
    renamed = getattr(kind_of_config, "attribute_map", {})
    held = fields | (fields.get("text_config") or {})
    needed = [*NEEDED] + ["intermediate_size"] * (
        "moe_intermediate_size" not in held and "intermediate_size" in kind_of_config.__init__.__annotations__
    )
    if missing := [name for name in needed if name not in held and renamed.get(name) not in held]:
        raise ValueError(f"model: {path} lacks the field{'s' * (len(missing) > 1)} {', '.join(missing)}")
    try:
        return kind_of_config(**fields), name
    except Exception as error:  # classes check themselves, with errors of their own
        said = str(error).splitlines()[-1].strip()
        raise ValueError(f"model: the configuration of {name} does not hold together: {said}") from error


__all__ = ["LAYERS", "Decoder", "VisionTransformer", "dtype_of", "read_decoder", "read_vision"]
