"""The head of a language model on a few rows: logits, softmax, and their gradients, in one buffer.

Everything between the matrix product and the loss is done in place on a buffer of (rows, vocabulary), in float32 (or
float64). Equations: arXiv 2506.03077, section 3.1; the order scale, soft-cap, temperature is that of the Hugging Face
models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty._common.checks import number, positive

#: Columns that are looked at together where a full-size temporary would double the buffer.
COLUMNS = 4096


@dataclass(frozen=True)
class LogitShape:
    """What a model does to ``hidden @ weight.T`` before the softmax.

    Args:
        scale: Multiplier of the logits.
        softcap: Bound kappa of ``kappa * tanh(z / kappa)``; ``None`` for none.
        temperature: Divisor of the logits, applied last.

    Raises:
        ValueError: The temperature or the soft-cap is not positive, or the scale is not finite.
    """

    scale: float = 1.0
    softcap: float | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        number("logit_scale", self.scale, "a finite number")
        positive("temperature", self.temperature)
        if self.softcap is not None:
            positive("softcap", self.softcap, "a positive number or None")

    def applied(self, z: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """Return shaped logits, in float32 or more, as a graph that autograd keeps."""
        z = (z if z.dtype == torch.float64 else z.float()) * self.scale
        if self.softcap is not None:
            z = self.softcap * torch.tanh(z / self.softcap)
        return z / self.temperature


@dataclass
class Head:
    """The weights of a head in the precision in which it multiplies, and the sums of their gradients.

    Args:
        weight: (vocabulary, hidden), in the dtype of the product.
        bias: (vocabulary,) or ``None``.
        shape: What follows the product.
        chunk: Rows that are worked on together.
        accum_dtype: In which gradients of 16-bit weights are summed.
    """

    weight: Float[Tensor, "vocab hidden"]
    bias: Float[Tensor, " vocab"] | None
    shape: LogitShape
    chunk: int
    accum_dtype: torch.dtype = torch.float32
    grad_weight: Tensor | None = None
    grad_bias: Tensor | None = None
    _buffer: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """In which the softmax is taken."""
        return torch.float64 if self.weight.dtype == torch.float64 else torch.float32

    def want_gradients(self, weight: bool, bias: bool) -> None:
        """Make room for the sums; a frozen weight gets none."""
        low = self.weight.dtype in {torch.bfloat16, torch.float16}
        dtype = self.accum_dtype if low else self.weight.dtype
        if weight:
            self.grad_weight = torch.zeros(self.weight.shape, dtype=dtype, device=self.weight.device)
        if bias and self.bias is not None:
            self.grad_bias = torch.zeros(self.bias.shape, dtype=dtype, device=self.weight.device)

    def logits(self, h: Float[Tensor, "rows hidden"]) -> tuple[Float[Tensor, "rows vocab"], Tensor | None]:
        """Return the shaped logits of some rows in the shared buffer, and tanh where there is a soft-cap."""
        z = self._product(h)
        if self.bias is not None:
            z += self.bias
        shape = self.shape
        if shape.softcap is None:
            if (factor := shape.scale / shape.temperature) != 1.0:
                z *= factor
            return z, None
        tanh = z.mul_(shape.scale / shape.softcap).tanh()
        torch.mul(tanh, shape.softcap / shape.temperature, out=z)
        return z, tanh

    def _product(self, h: Tensor) -> Tensor:
        if self._buffer is None:
            rows, columns = self.chunk, len(self.weight)
            self._buffer = torch.empty(rows, columns, dtype=self.dtype, device=self.weight.device)
        z = self._buffer[: len(h)]
        if self.weight.dtype == self.dtype:
            return torch.mm(h, self.weight.t(), out=z)
        return z.copy_(torch.mm(h, self.weight.t()))

    def backward(
        self, grad: Float[Tensor, "rows vocab"], tanh: Tensor | None, h: Float[Tensor, "rows hidden"]
    ) -> Float[Tensor, "rows hidden"]:
        """Take the gradient of the shaped logits (it is overwritten); add to the weights', return the rows'."""
        shape = self.shape
        if tanh is not None:
            grad *= tanh.square_().neg_().add_(1)
        if (factor := shape.scale / shape.temperature) != 1.0:
            grad *= factor
        if self.grad_weight is not None:
            _add_product(self.grad_weight, grad, h)
        if self.grad_bias is not None:
            self.grad_bias += grad.sum(0)
        return torch.mm(grad.to(self.weight.dtype), self.weight)


def softmax_(z: Float[Tensor, "rows vocab"]) -> Float[Tensor, " rows"]:
    """Turn logits into probabilities in place; return their log-sum-exp."""
    highest = z.amax(-1, keepdim=True)
    total = z.sub_(highest).exp_().sum(-1, keepdim=True)
    z /= total
    return (highest + total.log()).squeeze(-1)


def entropy(p: Float[Tensor, "rows vocab"]) -> Float[Tensor, " rows"]:
    """Return the entropy of each row of probabilities, in nats."""
    total = torch.zeros_like(p[:, 0])
    for columns in torch.split(p, COLUMNS, dim=1):
        total -= torch.special.xlogy(columns, columns).sum(-1)
    return total


def picked(z: Float[Tensor, "rows vocab"], ids: Int[Tensor, " rows"]) -> Float[Tensor, " rows"]:
    """Return one entry a row."""
    return z.gather(1, ids[:, None]).squeeze(1)


def subtract_at_(z: Float[Tensor, "rows vocab"], ids: Int[Tensor, " rows"], amount: Tensor | float) -> None:
    """Subtract an amount from one entry of each row, in place."""
    amounts = torch.as_tensor(amount, dtype=z.dtype, device=z.device).expand(len(z))
    z.scatter_add_(1, ids[:, None], -amounts[:, None])


def _add_product(total: Tensor, grad: Tensor, h: Tensor) -> None:
    """``total += grad.T @ h``, never rounded to 16 bits in between."""
    if total.dtype == grad.dtype == h.dtype:
        total.addmm_(grad.t(), h)
    elif h.is_cuda and total.dtype == torch.float32:
        total += torch.mm(grad.to(h.dtype).t(), h, out_dtype=torch.float32)
    else:
        total += torch.mm(grad.t(), h.to(grad.dtype))
