"""Networks that end in one linear layer: finding that layer, and what comes before it.

The features h(x) are what arrives at the *head*, caught by a hook, so any architecture will do (residual, additive,
attention ...). The head has one logit, or two, whose difference is the logit; a Sigmoid, Softmax or LogSoftmax behind
it is recognised by comparing outputs. Everything is evaluated on a float64 copy in eval mode.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty.solvers.ellice.errors import UnsupportedModelError

#: Rows that pass through the network in one go.
BATCH = 8192


class Network:
    """A network as frozen features h and last-layer parameters θ.

    Args:
        module: The network as deployed; it is copied, and left as it is.
        sample: Some encoded rows, on which the head is recognised.
        head: The linear layer that gives the logit, or its name in ``module``; by default the last that fits.
        device: Where the float64 copy computes.

    Raises:
        thrifty.solvers.ellice.errors.UnsupportedModelError: No linear layer's output is the network's logit, it has
            more than two outputs, or its rows depend on one another.
    """

    def __init__(
        self,
        module: nn.Module,
        sample: Float[np.ndarray, "n d"],
        *,
        head: nn.Module | str | None = None,
        device: str = "cpu",
    ) -> None:
        self._head: Any = None
        self.deployed = module
        self.device = device
        names = _head_names(module, head)
        try:
            self.module = copy.deepcopy(module).double().to(device).eval()
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"device: expected one that is there, got {device!r}: {str(error).splitlines()[0]}"
            ) from None
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)
        if not names:
            raise UnsupportedModelError(
                f"model: expected a linear layer at its end, got a {type(module).__name__} without one"
            )
        rows = torch.as_tensor(sample[:256], dtype=torch.float64, device=device)
        for name in reversed(names):
            self._head = self.module.get_submodule(name)
            try:
                link = self._recognise(rows)
            except RuntimeError as error:
                reason = str(error).splitlines()[0]
                raise ValueError(f"X: expected the columns that model takes, got {rows.shape[1]}: {reason}") from None
            if link is not None:
                self.link = link
                break
        else:
            raise UnsupportedModelError(
                "model: expected the output of a linear layer (one or two logits, or their sigmoid, softmax or "
                f"log-softmax), got another of a {type(module).__name__}; pass head= if it has one that was not found"
            )
        weight, bias = self._head.weight, self._head.bias
        flat = weight[1] - weight[0] if len(weight) == 2 else weight[0]
        shift = 0.0 if bias is None else float(bias[1] - bias[0]) if len(weight) == 2 else float(bias[0])
        self.theta: NDArray[np.float64] = np.append(flat.cpu().numpy(), shift)

    def tensor_features(self, rows: Tensor) -> Tensor:
        """Return h of encoded rows, differentiably: ``[n, d]`` to ``[n, p]``."""
        return self._catch(rows)[0]

    def features(self, encoded: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n p"]:
        """Return h of encoded rows, batch by batch."""
        with torch.no_grad():
            pieces = [
                self.tensor_features(torch.as_tensor(encoded[at : at + BATCH], dtype=torch.float64, device=self.device))
                for at in range(0, len(encoded), BATCH)
            ]
        if not pieces:
            return np.empty((0, len(self.theta) - 1))
        found: NDArray[np.float64] = torch.cat(pieces).cpu().numpy()
        return found

    def deployed_logit(self, encoded: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return the logit of the network as it is deployed, in its own precision, in eval mode."""
        was_training = [part for part in self.deployed.modules() if part.training]
        first = next(iter(self.deployed.parameters()))
        self.deployed.eval()
        try:
            with torch.no_grad():
                rows = torch.as_tensor(encoded).to(first)
                out = [self.deployed(rows[at : at + BATCH]).double() for at in range(0, max(1, len(rows)), BATCH)]
        finally:
            for part in was_training:
                part.training = True
        return self.to_logit(torch.cat(out)).cpu().numpy()

    def to_logit(self, out: Tensor) -> Tensor:
        """Return the logit that an output of the network stands for, ``[n]``."""
        out = out.reshape(len(out), -1)
        if self.link == "logit":
            return out[:, 0]
        if self.link == "sigmoid":
            return out[:, 0].logit()
        if self.link == "softmax":
            return out[:, 1].log() - out[:, 0].log()
        return out[:, 1] - out[:, 0]  # two logits, or their log-softmax

    def _catch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return what arrives at the head, and what the network returns."""
        caught: list[Tensor] = []
        hook = self._head.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
        try:
            out = self.module(rows)
        finally:
            hook.remove()
        if len(caught) != 1 or caught[0].ndim != 2 or len(caught[0]) != len(rows):
            raise UnsupportedModelError(
                f"head: expected one that a forward pass meets once, with a row a row, got {len(caught)} times"
            )
        return caught[0], out

    def _recognise(self, rows: Tensor) -> str | None:
        """Return how the output follows from the head's, ``None`` if it does not."""
        try:
            with torch.no_grad():
                features, out = self._catch(rows)
                logits = self._head(features)
        except (UnsupportedModelError, AttributeError, TypeError):
            return None
        if not isinstance(out, torch.Tensor) or logits.shape[1] > 2:
            return None
        out = out.reshape(len(rows), -1)
        if logits.shape[1] == 1:
            known = {"logit": logits, "sigmoid": logits.sigmoid()}
        else:
            known = {"logits": logits, "softmax": logits.softmax(1), "log_softmax": logits.log_softmax(1)}
        for link, expected in known.items():
            if out.shape == expected.shape and torch.allclose(out, expected, rtol=1e-9, atol=1e-12):
                return link
        return None


def _head_names(module: nn.Module, head: Any) -> list[str]:
    """Return the names of the layers that may be the head."""
    if head is None:
        return [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    names = [name for name, part in module.named_modules() if part is head or name == head]
    if not names:
        raise UnsupportedModelError(f"head: expected a part of the model, got {head!r}")
    if not isinstance(module.get_submodule(names[0]), nn.Linear):
        raise UnsupportedModelError(f"head: expected a linear layer, got a {type(head).__name__}")
    return names


def from_mlp_classifier(model: Any) -> nn.Module:
    """Return a float64 torch network with the weights of a fitted binary ``MLPClassifier``; its output is the logit."""
    made: dict[str, type[nn.Module]] = {
        "relu": nn.ReLU,
        "tanh": nn.Tanh,
        "logistic": nn.Sigmoid,
        "identity": nn.Identity,
    }
    layers: list[nn.Module] = []
    for weight, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layer = nn.Linear(weight.shape[0], weight.shape[1], dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.as_tensor(np.asarray(weight, dtype=float).T))
            layer.bias.copy_(torch.as_tensor(np.asarray(bias, dtype=float)))
        layers += [layer, made[model.activation]()]
    return nn.Sequential(*layers[:-1])
