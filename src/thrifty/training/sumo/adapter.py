"""What fine-tuning changed, as a LoRA adapter: the best low-rank factors of W_tuned − W_base (arXiv 2505.24749).

SUMO trains all weights, but its updates are of low rank, and so, nearly, is their sum. By Eckart and Young the
truncated SVD Δ ≈ (U√Σ)(√ΣVᵀ) is the nearest product of two factors. They are written in PEFT's format, alpha = rank.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.checks import whole
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.training.sumo.guards import check_matrix
from thrifty.training.sumo.subspace import randomized_range

#: Above this many rows and columns a given rank is found by a randomised SVD.
LARGE = 1024

#: Without modules to look at, a two-dimensional weight of this name is no linear layer.
_NOT_LINEAR = re.compile(r"embed|wte|wpe|lm_head|norm|(^|\.)shared\.", re.IGNORECASE)


@dataclass(frozen=True)
class LoraFactors:
    """Δ ≈ B A of one layer.

    Args:
        A: [r, in].
        B: [out, r].
        error: ‖Δ − B A‖ / ‖Δ‖.

    Example:
        >>> import torch
        >>> LoraFactors(A=torch.ones(2, 6), B=torch.ones(4, 2), error=0.0).rank
        2
    """

    A: Float[Tensor, "r i"]
    B: Float[Tensor, "o r"]
    error: float

    @property
    def rank(self) -> int:
        """The number of columns of B."""
        return len(self.A)


@dataclass(frozen=True)
class Adapter:
    """The factors of every layer that changed.

    Args:
        layers: Module name to factors.
        left_out: Parameters that changed and that LoRA factors cannot carry (norms, biases, embeddings).
        transposed: Modules whose weight is stored [in, out] (``Conv1D``).

    Example:
        >>> import torch
        >>> factors = LoraFactors(A=torch.ones(2, 6), B=torch.ones(4, 2), error=0.0)
        >>> adapter = Adapter({"model.layers.0.mlp.down_proj": factors}, left_out=("model.norm.weight",))
        >>> {name: found.rank for name, found in adapter.layers.items()}
        {'model.layers.0.mlp.down_proj': 2}
    """

    layers: dict[str, LoraFactors]
    left_out: tuple[str, ...]
    transposed: frozenset[str] = frozenset()

    def save(self, folder: str | Path, *, base_model: str | None = None, force: bool = False) -> Path:
        """Write ``adapter_config.json`` and ``adapter_model.safetensors``, which ``PeftModel.from_pretrained`` reads.

        Raises:
            ImportError: peft is not installed.
            FileExistsError: There is an adapter, and ``force`` is False.
        """
        peft = require("peft", extra="llm")
        save = require("safetensors.torch", extra="torch").save
        ranks = {name: factors.rank for name, factors in self.layers.items()}
        most = max(ranks.values())
        pattern = {f"^{re.escape(name)}$": rank for name, rank in ranks.items() if rank != most}
        config = peft.LoraConfig(
            r=most,
            lora_alpha=most,
            target_modules=sorted(self.layers),
            rank_pattern=pattern,
            alpha_pattern=dict(pattern),
            fan_in_fan_out=bool(self.transposed),
            base_model_name_or_path=base_model,
            inference_mode=True,
        )
        tensors = {}
        for name, factors in self.layers.items():
            tensors[f"base_model.model.{name}.lora_A.weight"] = factors.A.contiguous()
            tensors[f"base_model.model.{name}.lora_B.weight"] = factors.B.contiguous()
        folder = Path(folder)
        with tempfile.TemporaryDirectory() as scratch:
            config.save_pretrained(scratch)
            text = Path(scratch, "adapter_config.json").read_text(encoding="utf-8")
        write_whole(folder / "adapter_model.safetensors", save(tensors, metadata={"format": "pt"}), force=force)
        write_whole(folder / "adapter_config.json", text, force=force)
        return folder


def lora_factors(delta: Float[Tensor, "o i"], rank: int | None = None, tol: float = 1e-3) -> LoraFactors:
    """Return the best factors B A of a change of a weight.

    Args:
        delta: W_tuned − W_base, [out, in]; computed in float32.
        rank: At most so many columns of B; ``None``: as many singular values as exceed ``tol`` times the largest.
        tol: Of the numerical rank.

    Returns:
        The factors, of equal norm, and what they leave out.

    Raises:
        ValueError: ``rank`` < 1, ``tol`` is not in [0, 1), or the change holds NaN or Inf.

    Example:
        >>> import torch
        >>> delta = torch.outer(torch.arange(4.0), torch.ones(3))
        >>> factors = lora_factors(delta)
        >>> factors.rank, torch.allclose(factors.B @ factors.A, delta, atol=1e-5)
        (1, True)

    Source:
        Section 3 of arXiv 2505.24749, post-hoc adapter extraction; Eckart and Young (1936).
    """
    if rank is not None:
        whole("rank", rank)
    check_matrix("delta", delta)
    if delta.ndim != 2 or 0 in delta.shape:
        raise ValueError(f"delta: expected the change of one weight, rows and columns, got shape {tuple(delta.shape)}")
    if not 0 <= tol < 1:
        raise ValueError(f"tol: expected a number in [0, 1), got {tol}")
    delta = delta.float()
    if not delta.isfinite().all():
        raise ValueError(f"delta: a change of shape {tuple(delta.shape)} holds NaN or Inf")
    if rank is not None and 2 * rank < min(delta.shape) and min(delta.shape) > LARGE:
        Q = randomized_range(delta, rank, power_iters=4)
        inner, sigma, Vh = torch.linalg.svd(Q.mT @ delta, full_matrices=False)
        U = Q @ inner
    else:
        U, sigma, Vh = torch.linalg.svd(delta, full_matrices=False)
    numerical = int((sigma > tol * sigma[0]).sum()) if len(sigma) else 0
    kept = max(1, min(numerical, rank or numerical))
    root = sigma[:kept].sqrt()
    B, A = U[:, :kept] * root, root.unsqueeze(1) * Vh[:kept]
    error = (delta - B @ A).norm() / delta.norm().clamp_min(torch.finfo(delta.dtype).tiny)
    return LoraFactors(A, B, error.item())


def extract_lora(
    model: nn.Module | Mapping[str, Tensor],
    base_state_dict: Mapping[str, Tensor],
    rank: int | None = None,
    tol: float = 1e-3,
    out_dir: str | Path | None = None,
    *,
    base_model: str | None = None,
    force: bool = False,
) -> Adapter:
    """Return what training changed in the linear layers, as LoRA factors, and write a PEFT folder if asked.

    Args:
        model: The tuned model (compiled or wrapped for data parallelism too) or its state dict, in which linear layers
            are told by name.
        base_state_dict: Of the model before, as a copy; values may be read lazily, one is used at a time.
        rank: At most; ``None``: each layer its numerical rank.
        tol: Singular values up to ``tol`` times the largest count as zero.
        out_dir: Where to write the adapter.
        base_model: Name or path of the base model, for the adapter's configuration.
        force: Replace an adapter that is already there.

    Raises:
        TypeError: ``base_state_dict`` is a module.
        ValueError: A parameter is missing from ``base_state_dict`` or has another shape there, or nothing changed.
        ImportError: ``out_dir`` is given, and peft is not installed.

    Example:
        >>> before = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False))
        >>> start = {name: weight.clone() for name, weight in before.state_dict().items()}
        >>> _ = before[0].weight.data.add_(torch.ones(8, 8))  # a change of rank one
        >>> [factors.rank for factors in extract_lora(before, start).layers.values()]
        [1]

    Source:
        Section 3 of arXiv 2505.24749, post-hoc adapter extraction.
    """
    if isinstance(base_state_dict, nn.Module):
        kind = type(base_state_dict).__name__
        raise TypeError(f"base_state_dict: expected a mapping of names to tensors, got {kind}; pass its state_dict()")
    tuned, linear, transposed = _weights(model)
    layers, left_out = {}, []
    for name, weight in tuned.items():
        if name not in base_state_dict:
            raise ValueError(f"base_state_dict: it lacks {name!r}; is it of the same architecture?")
        before = base_state_dict[name]
        if before.shape != weight.shape:
            raise ValueError(
                f"base_state_dict: {name} is {tuple(before.shape)} there and {tuple(weight.shape)} in the tuned model"
            )
        delta = weight.detach().float() - before.detach().to(weight.device).float()
        if not delta.count_nonzero():
            continue
        if name not in linear:
            left_out.append(name)
            continue
        module = name.removesuffix(".weight")
        layers[module] = lora_factors(delta.mT if module in transposed else delta, rank, tol)
    if not layers:
        raise ValueError(
            "model: no linear layer differs from base_state_dict (state_dict() shares the model's memory: "
            "clone its tensors before training)"
        )
    adapter = Adapter(layers, tuple(left_out), transposed)
    if out_dir is not None:
        adapter.save(out_dir, base_model=base_model, force=force)
    return adapter


def is_linear_name(name: str) -> bool:
    """Guess from a parameter's name alone whether it is a linear layer's weight inside a block."""
    return name.endswith(".weight") and not _NOT_LINEAR.search(name)


def _weights(model: nn.Module | Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], set[str], frozenset[str]]:
    """Return the parameters, the names of linear weights, and the modules that store them transposed."""
    if not isinstance(model, nn.Module):
        shapes = {name: tuple(weight.shape) for name, weight in model.items()}
        linear = {name for name, shape in shapes.items() if len(shape) == 2 and is_linear_name(name)}
        return model, linear, _stored_transposed(shapes, linear)
    plain: nn.Module = getattr(model, "_orig_mod", model)  # torch.compile's wrapper
    if isinstance(plain, nn.parallel.DistributedDataParallel | nn.DataParallel):
        plain = plain.module
    modules = dict(plain.named_modules())
    transposed = frozenset(name for name, module in modules.items() if type(module).__name__ == "Conv1D")
    linear = {f"{name}.weight" for name, module in modules.items() if isinstance(module, nn.Linear)}
    return dict(plain.named_parameters()), linear | {f"{name}.weight" for name in transposed}, transposed


def _stored_transposed(shapes: Mapping[str, tuple[int, ...]], linear: set[str]) -> frozenset[str]:
    """Return the modules that store [in, out], as GPT-2's do: a bias is as long as the outputs.

    A square weight does not tell; it is stored as its namesakes in other places are.
    """

    def last(name: str) -> str:
        return name.removesuffix(".weight").rpartition(".")[2]

    def turned(name: str) -> bool:
        rows, columns = shapes[name]
        return rows != columns and shapes.get(f"{name.removesuffix('weight')}bias") == (columns,)

    kinds = {last(name) for name in linear if turned(name)}
    return frozenset(name.removesuffix(".weight") for name in linear if last(name) in kinds)
