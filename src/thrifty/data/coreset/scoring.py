"""Computing per-sample gradients of a model's loss over a data set: in ``eval`` mode, without touching the model."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from thrifty.data.coreset.gradients import DenseGradients, LastLayerGradients, Loss, errors_of

#: Which gradients there are, beside ``"params:<regular expression>"``.
KINDS = ("last_layer", "logits", "full")


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return per-sample softmax cross-entropies: the default loss."""
    return functional.cross_entropy(logits, targets, reduction="none")


def per_sample(loss: nn.Module | Loss | None) -> Loss:
    """Return a loss that gives one number a sample, of torch's loss modules or of a function that does so already.

    Args:
        loss: None: softmax cross-entropy. A module with ``reduction`` is copied, and its reduction undone.

    Example:
        >>> import torch
        >>> per_sample(torch.nn.BCEWithLogitsLoss())(torch.zeros(2, 5), torch.ones(2, 5)).shape
        torch.Size([2])
    """
    if loss is None:
        return cross_entropy
    if not isinstance(loss, nn.Module) or not hasattr(loss, "reduction"):
        return loss
    unreduced: Any = copy.copy(loss)
    unreduced.reduction = "none"

    def each(logits: Tensor, targets: Tensor) -> Tensor:
        found = unreduced(logits, targets)
        losses: Tensor = found if found.ndim == 1 else found.flatten(1).mean(1)
        return losses

    return each


def split(batch: Any) -> tuple[Any, Tensor]:
    """Return what of a batch goes into the model, and the targets: ``(x, y)``, or a mapping with ``labels``.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(batch, Mapping):
        if "labels" not in batch:
            raise TypeError(f"batch: expected a mapping with 'labels', got the keys {sorted(batch)}")
        return {key: value for key, value in batch.items() if key != "labels"}, batch["labels"]
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    raise TypeError(f"batch: expected (inputs, targets) or a mapping with 'labels', got {type(batch).__name__}")


def run(model: nn.Module, inputs: Any) -> Tensor:
    """Return a model's logits for inputs as :func:`split` gives them; Transformers' outputs are unpacked."""
    found = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    logits: Tensor = getattr(found, "logits", found)
    return logits


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch whose tensors are on a device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(part, device) for part in batch)
    return batch


def device_of(model: nn.Module) -> torch.device:
    """Return the device that a model's first parameter is on."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module into ``eval`` mode for a while, and back into its own."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def find_head(model: nn.Module, inputs: Any) -> nn.Linear:
    """Return the linear layer whose output the model's logits are.

    Args:
        model: In whatever mode; it is put back.
        inputs: Of a batch, as :func:`split` gives them.

    Raises:
        ValueError: There is none, or a reparametrised one.
    """
    found: list[tuple[nn.Linear, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda at, _, out: found.append((at, out)))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with evaluating(model), torch.no_grad():
            logits = run(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    heads = {id(module): module for module, out in found if out.data_ptr() == logits.data_ptr()}
    if len(heads) != 1 or logits.ndim != 2:
        raise ValueError(
            f"head: expected one Linear whose output the logits (n, c) are, got {len(heads)} and logits of shape "
            f'{tuple(logits.shape)}; give head=, or choose grad="full"'
        )
    (head,) = heads.values()
    if nn.utils.parametrize.is_parametrized(head):
        raise ValueError('head: expected a plain Linear, got a reparametrised one; give head=, or choose grad="full"')
    return head


class GradientScorer:
    """Computes per-sample gradients of a model's loss over batches.

    Args:
        model: Any; it is scored in ``eval`` mode and without dropout, and left as it was.
        loss: Per-sample losses of logits and targets, or a loss module of torch (label smoothing, multi-label,
            regression); None: softmax cross-entropy.
        grad: ``"last_layer"``, ``"logits"``, ``"full"``, or ``"params:<regular expression>"`` of names.
        head: The last layer, or its name; None: the linear layer whose output the logits are.
        chunk: Samples at once where gradients are written out (``"full"``, ``"params:"``).

    Raises:
        ValueError: An argument will not do.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> batch = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
        >>> GradientScorer(model)([batch]).gram(torch.tensor([0])).shape
        torch.Size([5, 1])

    Source:
        arXiv 2103.00123, section 4: the last layer's gradients; the paper of ERACS does not say which.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module | Loss | None = None,
        grad: str = "last_layer",
        head: nn.Module | str | None = None,
        chunk: int = 64,
    ) -> None:
        if grad not in KINDS and not grad.startswith("params:"):
            raise ValueError(f"grad: expected one of {', '.join(KINDS)} or params:<pattern>, got {grad!r}")
        if isinstance(head, str):
            named: dict[str, nn.Module] = dict(model.named_modules())
            if head not in named:
                raise ValueError(f"head: expected the name of a module, got {head!r}; there are {', '.join(named)}")
            head = named[head]
        if head is not None and not isinstance(head, nn.Linear):
            raise ValueError(f'head: expected a Linear, got a {type(head).__name__}; or choose grad="full"')
        self.model, self.loss, self.grad, self.head, self.chunk = model, per_sample(loss), grad, head, chunk
        pattern = re.compile(grad.removeprefix("params:") if grad.startswith("params:") else "")
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad and pattern.search(name)}
        if grad not in ("last_layer", "logits") and not self._parameters:
            raise ValueError(f"grad: expected a pattern that matches a trained parameter, got {grad!r}")

    def __call__(self, batches: Iterable[Any]) -> LastLayerGradients | DenseGradients:
        """Return the gradients of all samples, on the model's device.

        Args:
            batches: As :func:`split` takes them.

        Raises:
            ValueError: There is no sample, a loss or gradient is not finite, or no head is found.
        """
        device = device_of(self.model)
        dense = self.grad not in ("last_layer", "logits")
        work = self._dense if dense else self._last_layer
        with evaluating(self.model):
            parts = [work(*split(to_device(batch, device))) for batch in batches]
        if not parts:
            raise ValueError("data: expected at least one sample, got none")
        held: dict[str, Any] = {name: _joined([part[name] for part in parts]) for name in parts[0]}
        if dense:
            return DenseGradients(**held)
        return LastLayerGradients(**held, bias=self.head is None or self.head.bias is not None, loss=self.loss)

    def _last_layer(self, inputs: Any, targets: Tensor) -> dict[str, Tensor | None]:
        seen: list[Tensor] = []
        hook = None
        if self.grad == "last_layer":
            self.head = self.head or find_head(self.model, inputs)
            hook = self.head.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            with torch.no_grad():
                logits = run(self.model, inputs).float()
        finally:
            if hook is not None:
                hook.remove()
        if logits.ndim != 2:
            raise ValueError(f"model: expected logits of shape (n, c), got {tuple(logits.shape)}")
        return {
            "errors": errors_of(self.loss, logits, targets),
            "inputs": seen[-1].float() if seen else None,
            "labels": _classes(targets),
            "logits": logits,
            "targets": targets,
        }

    def _dense(self, inputs: Any, targets: Tensor) -> dict[str, Tensor | None]:
        others = {
            name: value
            for name, value in (*self.model.named_parameters(), *self.model.named_buffers())
            if name not in self._parameters
        }

        def loss(parameters: dict[str, Tensor], one: Any, target: Tensor) -> Tensor:
            one = {k: v[None] for k, v in one.items()} if isinstance(one, Mapping) else one[None]
            given = ((), one) if isinstance(one, Mapping) else ((one,), {})
            found = functional_call(self.model, {**others, **parameters}, *given)
            return self.loss(getattr(found, "logits", found), target[None]).sum()

        of_each = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=self.chunk)
        found = of_each({name: p.detach() for name, p in self._parameters.items()}, inputs, targets)
        return {
            "values": torch.cat([part.flatten(1) for part in found.values()], 1).float(),
            "labels": _classes(targets),
        }


def _classes(targets: Tensor) -> Tensor | None:
    """Return targets that are classes; those of regression and several labels are none."""
    return targets if targets.ndim == 1 and not targets.is_floating_point() else None


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.cat(found) if found else None


def losses_of(source: LastLayerGradients) -> Float[Tensor, " n"]:
    """Return the samples' losses.

    Raises:
        ValueError: The gradients came without logits, targets and loss.
    """
    if source.logits is None or source.targets is None or source.loss is None:
        raise ValueError('gradients: expected logits, targets and loss with them, got none; choose grad="last_layer"')
    with torch.no_grad():
        return source.loss(source.logits, source.targets)
