"""What may be given to a layer, and errors that say what came instead; masks, lengths and step sizes as one blend."""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Median absolute input from which sigmoids of the input saturate at initialisation, and gradients vanish.
UNSCALED = 50.0


class NotFiniteError(ValueError):
    """Inputs hold NaN or infinity."""


def check_input(u: Tensor, width: int, dtype: torch.dtype, name: str = "u") -> Float[Tensor, "batch time n"]:
    """Return ``u`` in the dtype of the parameters.

    Raises:
        ValueError: It is not ``(batch, time, width)``, is empty, is not of floating point, or is not finite.
        TypeError: It is no tensor.
    """
    if not isinstance(u, Tensor):
        raise TypeError(f"{name}: expected a tensor (batch, time, {width}), got {type(u).__name__}")
    if torch._C._functorch.is_batchedtensor(u):
        raise ValueError(f"{name}: torch.vmap is not supported; the first dimension of {name} is the batch already")
    if u.dim() != 3 or u.shape[2] != width:
        raise ValueError(f"{name}: expected shape (batch, time, {width}), got {tuple(u.shape)}")
    if 0 in u.shape:
        raise ValueError(f"{name}: expected at least one sequence and one step, got shape {tuple(u.shape)}")
    if not u.is_floating_point():
        raise ValueError(f"{name}: expected floating-point numbers, got {u.dtype}; convert with {name}.float()")
    return check_finite(u, dtype, name)


def check_finite(x: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """Return ``x`` in a dtype; not looked at while ``torch.compile`` or an export traces.

    Raises:
        NotFiniteError: A number is not finite, in its own dtype or in the new one.
    """
    if not torch.compiler.is_compiling():
        _check_values(x, dtype, name)
    return x.to(dtype)


@torch.compiler.disable
def _check_values(x: Tensor, dtype: torch.dtype, name: str) -> None:
    x = x.detach()
    total = x.to(dtype).sum()
    if not bool(torch.isfinite(total)) and not bool((finite := torch.isfinite(x.to(dtype))).all()):
        first = tuple((~finite).nonzero()[0].tolist())
        raise NotFiniteError(
            f"{name}: expected numbers that are finite in {dtype}, got {x[first].item()} at index {first}"
        )


@torch.compiler.disable
def warn_if_unscaled(u: Tensor, name: str = "u") -> None:
    """Warn once if inputs are so large that sigmoids of them saturate."""
    sample = u.detach().flatten()[:: max(1, u.numel() // 4096)].abs().float()
    typical = float(sample.median())
    if typical > UNSCALED:
        warnings.warn(
            f"{name}: the median absolute input is {typical:.4g}; the input synapse saturates and hardly trains. "
            "Scale the inputs, or use standardize=True in LrcSSMModel or the estimators",
            RuntimeWarning,
            stacklevel=3,
        )


def make_mask(u: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Bool[Tensor, "batch time"] | None:
    """Return which steps count, from lengths or a mask (not both); ``None`` if all do.

    Raises:
        ValueError: Shapes do not fit, a length is not in 1 … T, or a sequence has no step that counts.
    """
    n, T = u.shape[:2]
    if lengths is not None and mask is not None:
        raise ValueError("mask: give lengths or mask, not both")
    if lengths is not None:
        lengths = torch.as_tensor(lengths, device=u.device)
        if lengths.shape != (n,) or lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise ValueError(
                f"lengths: expected {n} whole numbers, got shape {tuple(lengths.shape)} of {lengths.dtype}"
            )
        if bool((lengths < 1).any()) or bool((lengths > T).any()):
            raise ValueError(f"lengths: expected numbers in 1 … {T}, got {lengths.tolist()}")
        return torch.arange(T, device=u.device) < lengths.unsqueeze(1)
    if mask is None:
        return None
    mask = torch.as_tensor(mask, device=u.device)
    if mask.shape != (n, T) or mask.dtype != torch.bool:
        raise ValueError(f"mask: expected booleans of shape {(n, T)}, got {mask.dtype} of shape {tuple(mask.shape)}")
    if not bool(mask.any(dim=1).all()):
        empty = int((~mask.any(dim=1)).nonzero()[0, 0])
        raise ValueError(f"mask: expected at least one step that counts in each sequence, got none in sequence {empty}")
    return mask


def make_dt(u: Tensor, dt: float | Tensor | None, default: float, *, allow_large: bool = False) -> float | Tensor:
    """Return the step size: a number, or ``(batch or 1, time, 1)``.

    Raises:
        ValueError: Its shape is none of ``()``, (B, T), (B, T, 1), or a value is not in (0, 1] (above 0 if
            ``allow_large``).
    """
    if dt is None:
        return default
    if isinstance(dt, Tensor) and dt.requires_grad:
        raise ValueError("dt: no gradient flows to the step size; pass dt.detach()")
    if not isinstance(dt, Tensor | float | int):
        raise TypeError(f"dt: expected a number or a tensor, got {type(dt).__name__}")
    steps = torch.as_tensor(dt, device=u.device)
    n, T = u.shape[:2]
    if steps.dim() not in {0, 2, 3} or (steps.dim() > 0 and steps.shape not in {(n, T), (n, T, 1)}):
        raise ValueError(f"dt: expected a number, {(n, T)} or {(n, T, 1)}, got shape {tuple(steps.shape)}")
    wrong = ~(steps > 0) | (~(steps <= 1) if not allow_large else ~torch.isfinite(steps))
    if bool(wrong.any()):
        value = float(steps[wrong].flatten()[0])
        hint = "" if allow_large else "; larger ones need allow_large_dt=True and void all guarantees"
        raise ValueError(f"dt: expected steps in (0, 1], got {value:g}{hint}")
    return float(steps) if steps.dim() == 0 else steps.reshape(n, T, 1).to(u.dtype)


def blend(u: Tensor, mask: Tensor | None, dt: float | Tensor, rho: float | None) -> tuple[Tensor | None, Tensor | None]:
    """Return (keep, take) of every step, or (None, None) if every step is the cell's own."""
    if mask is None and rho is None and not isinstance(dt, Tensor) and dt == 1:
        return None, None
    factor = 1.0 if rho is None else rho
    take = torch.as_tensor(factor * dt, dtype=u.dtype, device=u.device).expand(*u.shape[:2], 1)
    keep = torch.as_tensor(factor * (1 - dt), dtype=u.dtype, device=u.device).expand(*u.shape[:2], 1)
    if mask is not None:
        m = mask.unsqueeze(-1)
        take, keep = torch.where(m, take, 0.0), torch.where(m, keep, 1.0)
    return keep, take
