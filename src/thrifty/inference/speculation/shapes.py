"""How many weights of a model are read at every step, and how many by each expert that wakes.

A config's own class in transformers is built without memory (on the ``meta`` device) and its parameters are counted: a
module whose class name ends in ``Experts`` holds the routed ones. Where the class is unknown or transformers absent,
:mod:`~thrifty.inference.speculation.formula` computes the same from the config's fields; no remote code is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from thrifty.inference.speculation import formula

#: MXFP4: four bits a weight and an eight-bit scale for every 32 of them.
MXFP4_BYTES = 4.25 / 8


@dataclass(frozen=True)
class MoEShape:
    """What the cost of a forward pass depends on. A dense model has one expert, which holds nothing.

    Args:
        name: For the reader.
        num_experts: Routed experts of a layer, E.
        top_k: Routed experts of a token, K.
        moe_layers: Layers with routed experts.
        total_params: All parameters.
        expert_params: Parameters of *one* routed expert, summed over the layers.
        dense_params: Parameters read at every step whatever the router says: everything but routed experts and input
            embedding (attention, norms, routers, shared experts, dense layers, head).
        weight_bytes: Bytes of a weight.
        expert_weight_bytes: Bytes of a routed expert's weight.
        kv_bytes_per_token: Bytes that a token leaves in the cache of keys and values.
        notes: What the reader should know.

    Example:
        >>> qwen = MoEShape.from_config("qwen2-57b-a14b")
        >>> qwen.num_experts, qwen.top_k, qwen.moe_layers, qwen.expert_params
        (64, 8, 28, 770703360)

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, appendix C (V_dense and V_exp); fields as
        ``config.json`` names them.
    """

    name: str
    num_experts: int
    top_k: int
    moe_layers: int
    total_params: int
    expert_params: int
    dense_params: int
    weight_bytes: float
    expert_weight_bytes: float
    kv_bytes_per_token: float
    notes: tuple[str, ...] = ()

    @property
    def dense_bytes(self) -> float:
        """Bytes read at every step."""
        return self.dense_params * self.weight_bytes

    @property
    def expert_bytes(self) -> float:
        """Bytes read for each expert index that is awake, over all layers."""
        return self.expert_params * self.expert_weight_bytes

    @property
    def active_params(self) -> int:
        """Parameters that a token is multiplied with."""
        return self.dense_params + self.top_k * self.expert_params

    @property
    def active_bytes(self) -> float:
        """Bytes that one token alone makes a step read."""
        return self.dense_bytes + self.top_k * self.expert_bytes

    @classmethod
    def from_config(
        cls,
        config: str | Path | Mapping[str, Any] | Any,
        weight_bytes: float | None = None,
        expert_bytes: float | None = None,
        *,
        build: bool = True,
    ) -> MoEShape:
        """Count a model from its config.

        Args:
            config: A profile's name (``"qwen3-30b-a3b"``), a ``config.json`` or the folder that holds one, its content
                as a mapping, or a ``PretrainedConfig``.
            weight_bytes: Bytes of a weight; ``None``: what the config says of quantisation, else 2.
            expert_bytes: Bytes of a routed expert's weight; ``None``: likewise, else ``weight_bytes``.
            build: Build the class to count; ``False`` computes from the fields, without importing transformers.

        Raises:
            ValueError: A field is missing; the message names it. Or there is no such profile or file.
        """
        name, fields = read_config(config)
        text = fields.get("text_config") or fields
        how = fields.get("quantization_config") or {}
        mxfp4 = how.get("quant_method") == "mxfp4"
        wide = weight_bytes if weight_bytes is not None else 2.0 if mxfp4 else _bits(how) / 8
        narrow = expert_bytes if expert_bytes is not None else MXFP4_BYTES if mxfp4 else wide
        if isinstance(config, str) and name in profiles():
            counts = formula.Counts(**_tables()["counts"][name])
        else:
            counts = (_counted(fields) if build else None) or formula.counts(text)
        notes = counts.notes
        if counts.num_experts == 1:
            notes += ("a dense model: one expert, always awake (K/E = 1)",)
        return cls(
            name, counts.num_experts, counts.top_k, counts.moe_layers, counts.total, counts.expert, counts.dense,
            wide, narrow, formula.kv_numbers_per_token(text) * 2.0, notes,
        )  # fmt: skip


def _bits(quantisation: Mapping[str, Any]) -> float:
    """Return the bits of a weight that a config's ``quantization_config`` speaks of; 16 where there is none.

    Raises:
        ValueError: It does not say how many.
    """
    if not quantisation:
        return 16.0
    method, groups = quantisation.get("quant_method"), quantisation.get("config_groups") or {}
    found = (
        quantisation.get("bits")  # GPTQ, AWQ
        or (8 if method == "fp8" or quantisation.get("load_in_8bit") else 0)
        or (4 if quantisation.get("load_in_4bit") else 0)
        or max((group["weights"]["num_bits"] for group in groups.values() if group.get("weights")), default=0)
    )
    if not found:
        raise ValueError(f"quantization_config: {method!r} does not say how many bits a weight has; give weight_bytes")
    return float(found)


def profiles() -> dict[str, dict[str, Any]]:
    """Return the configs of public models that come with the package."""
    return _tables()["models"]


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the configs of public models, and what counting their classes gave (a test counts again)."""
    text = resources.files("thrifty.inference.speculation.profiles").joinpath("models.json").read_text()
    tables: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return tables


def read_config(config: str | Path | Mapping[str, Any] | Any) -> tuple[str, dict[str, Any]]:
    """Return a name and the fields of whatever describes a model.

    Raises:
        ValueError: There is no such profile or file, or it is not a config.
    """
    if isinstance(config, Mapping):
        return str(config.get("_name_or_path") or config.get("model_type", "model")), dict(config)
    if not isinstance(config, str | Path):
        if not hasattr(config, "to_dict"):
            kind = type(config).__name__
            raise TypeError(f"config: expected a name, a path, a mapping or a PretrainedConfig, got {kind}")
        return str(getattr(config, "_name_or_path", "") or config.model_type), dict(config.to_dict())
    if str(config).casefold() in profiles():
        return str(config).casefold(), dict(profiles()[str(config).casefold()])
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    if not path.exists():
        raise ValueError(f"config: there is no file {path}, and no profile of that name ({', '.join(profiles())})")
    try:
        fields = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config: {path} is not JSON ({error})") from None
    if not isinstance(fields, dict):
        raise ValueError(f"config: {path} holds {type(fields).__name__}, expected an object")
    return path.parent.name or path.stem, fields


def _counted(fields: Mapping[str, Any]) -> formula.Counts | None:
    """Build the config's own class without memory and count; ``None`` where transformers does not know it."""
    formula.experts_of(fields.get("text_config") or fields)  # names what is missing before a default stands in for it
    try:
        import torch
        from huggingface_hub.errors import StrictDataclassError
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        return None
    kind = fields.get("model_type")
    rest = {k: v for k, v in fields.items() if k not in {"model_type", "quantization_config", "auto_map"}}
    try:
        config = AutoConfig.for_model(str(kind), **rest)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    except (
        ValueError,
        KeyError,
        AttributeError,
        StrictDataclassError,
    ):  # not a class that transformers has for causal language models
        return None
    routed, layers, experts = 0, 0, 1
    for module in model.modules():
        weights = [p for p in module.parameters(recurse=False) if p.ndim == 3]
        if type(module).__name__.endswith("Experts") and weights:
            routed += sum(p.numel() for p in module.parameters())
            experts, layers = weights[0].shape[0], layers + 1
    named, top_k = formula.experts_of(fields.get("text_config") or fields)
    if not layers and named > 1:
        return None  # experts that are stored in some other way
    if layers and named != experts:
        raise ValueError(f"config: its class has {experts} experts; none of {', '.join(formula.EXPERTS)} says so")
    total = sum(p.numel() for p in model.parameters())
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is embedding
    dense = total - routed - (0 if tied else embedding.numel())
    return formula.Counts(experts, top_k, layers, total, routed // experts if layers else 0, dense)
