"""Stepping in the backward pass: a parameter is updated as soon as its gradient is there, and the gradient is freed.

Full gradients never exist side by side, so their memory falls from that of the model to that of its largest weight
(arXiv 2505.24749 promises it; Lv et al., "Full Parameter Fine-tuning for LLMs with Limited Resources", introduced it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from thrifty.training.sumo.groups import sumo_param_groups
from thrifty.training.sumo.optimizer import SUMO


class Layerwise:
    """A model whose backward pass also steps.

    The training loop stays as it is: ``loss.backward()``, ``optimizer.step()``, ``optimizer.zero_grad()``. The step
    then only ends the iteration, and schedulers and checkpoints work on ``optimizer`` as always.

    Args:
        model: Whose parameters step.
        optimizer: Over them.

    Attributes:
        optimizer: The SUMO object.

    Example:
        >>> model = nn.Linear(32, 32)
        >>> with attach_layerwise(model, SUMO, rank=4) as handle:
        ...     model(torch.ones(1, 32)).sum().backward()
        ...     handle.optimizer.step()

    Source:
        Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO, 2023).
    """

    def __init__(self, model: nn.Module, optimizer: SUMO) -> None:
        self.optimizer = optimizer
        self._stepped: set[Tensor] = set()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        # What is frozen now has no gradient to wait for; if it is unfrozen later, optimizer.step() updates it.
        trained = [p for p in parameters if p.requires_grad]
        self._hooks: list[Any] = [p.register_post_accumulate_grad_hook(self._on_gradient) for p in trained]
        self._hooks.append(optimizer.register_step_post_hook(lambda *_: self._stepped.clear()))
        self._hooks.append(model.register_forward_pre_hook(_refuse_wrapping))

    def remove(self) -> None:
        """Go back to ordinary steps; the optimizer and its state stay."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def __enter__(self) -> Layerwise:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _on_gradient(self, parameter: Tensor) -> None:
        if parameter in self._stepped:
            raise ValueError(
                "gradient accumulation: a second backward pass reached a parameter before optimizer.step(). Stepping "
                "in the backward pass uses each gradient at once and cannot add several up; accumulate without "
                "attach_layerwise, or call optimizer.step() after every backward pass"
            )
        self._stepped.add(parameter)
        self.optimizer.step_parameter(parameter)
        parameter.grad = None


def attach_layerwise(
    model: nn.Module,
    optimizer: type[SUMO] | SUMO = SUMO,
    *,
    gradient_accumulation_steps: int = 1,
    max_grad_norm: float | None = None,
    grad_scaler: Any = None,
    target_modules: str | Sequence[str] = "all-linear",
    rank: int = 128,
    **options: Any,
) -> Layerwise:
    """Let each parameter be updated in the backward pass, as soon as its gradient is complete.

    Args:
        model: On one device.
        optimizer: :class:`SUMO`, which is then built over :func:`sumo_param_groups`, or an object of it (to have other
            groups, such as a rate of its own for AdamW). What is frozen now steps as usual once it is not.
        gradient_accumulation_steps: Of the training loop; must be 1.
        max_grad_norm: Of the training loop; must be ``None`` or 0: a norm over all gradients never exists.
        grad_scaler: Of the training loop; must be ``None`` or disabled.
        target_modules: As in :func:`sumo_param_groups`, if the optimizer is built here.
        rank: Likewise.
        **options: Of SUMO, likewise.

    Returns:
        A handle with ``optimizer`` and ``remove()``; as a context manager it removes itself at the end of the block.

    Raises:
        TypeError: The model or the optimizer is of another kind.
        ValueError: The loop accumulates, clips or scales gradients, or the model is wrapped for data parallelism.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(32, 32)
        >>> handle = attach_layerwise(model, SUMO, rank=4, lr=1e-3)
        >>> model(torch.ones(1, 32)).sum().backward()  # updates the weights
        >>> model.weight.grad is None
        True
        >>> handle.optimizer.step()  # ends the iteration

    Source:
        Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO, 2023).
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch module, got {type(model).__name__}")
    if not isinstance(optimizer, SUMO) and not (isinstance(optimizer, type) and issubclass(optimizer, SUMO)):
        raise TypeError(f"optimizer: expected SUMO, or one that is built, got {optimizer!r}")
    if gradient_accumulation_steps != 1:
        raise ValueError(
            f"gradient_accumulation_steps: expected 1, got {gradient_accumulation_steps}: a step in the backward pass "
            "uses each gradient at once, so there is nothing to add the next one to"
        )
    if max_grad_norm:
        raise ValueError(
            f"max_grad_norm: expected None, got {max_grad_norm}: clipping needs the norm over all gradients, which "
            'never exist at once; limit_target="update" limits each weight\'s own update instead'
        )
    if grad_scaler is not None and grad_scaler.is_enabled():
        raise ValueError(
            "grad_scaler: expected None: gradients are used before they could be unscaled or the step skipped; train "
            "in bfloat16 instead"
        )
    _refuse_data_parallel(model)
    if isinstance(optimizer, SUMO):
        if options:
            raise ValueError(f"optimizer: it is built already, so {', '.join(options)} would not be used")
        return Layerwise(model, optimizer)
    groups = sumo_param_groups(model, target_modules=target_modules, rank=rank)
    return Layerwise(model, optimizer(groups, **options))


def _refuse_data_parallel(model: nn.Module) -> None:
    wrapped = isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel)
    if wrapped or (torch.distributed.is_available() and _is_fsdp(model)):
        raise _reduced_too_late(type(model).__name__)


def _refuse_wrapping(*_: Any) -> None:
    """A model that is wrapped afterwards would silently take other steps on every rank."""
    parallel = nn.parallel.DistributedDataParallel
    if torch.distributed.is_available() and parallel._active_ddp_module is not None:
        raise _reduced_too_late(parallel.__name__)


def _reduced_too_late(kind: str) -> ValueError:
    return ValueError(
        f"model: {kind} reduces gradients over ranks after they are accumulated, and a step in the backward pass would "
        "use them before; use SUMO with ordinary steps there"
    )


def _is_fsdp(model: nn.Module) -> bool:
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    return any(isinstance(module, FSDPModule | FullyShardedDataParallel) for module in model.modules())
