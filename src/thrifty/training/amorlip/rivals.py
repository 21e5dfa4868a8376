"""Losses for small batches that no kept package gives: SogCLR, FastCLIP and NeuCLIP, after their papers.

SogCLR (arXiv 2202.12387) and FastCLIP (arXiv 2407.01445) keep a moving average of every sample's partition function, so
that they need each sample's number in the data set; NeuCLIP (arXiv 2511.08417) learns prototypes in its place. All of
it in log space, where the papers' code is not. One process: for a fair comparison, not for a cluster.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from thrifty._common.checks import number, one_of, whole
from thrifty.training.amorlip.networks import PartitionPrototypes
from thrifty.training.amorlip.schedules import cosine_ramp

#: ε of the papers.
EPSILON = 1e-14


class SogCLRLoss(nn.Module):
    """SogCLR: a moving average of g_i = mean_{j≠i} e^{s(u_i·v_j − u_i·v_i)} for every sample of the data set.

    Args:
        num_samples: n.
        gamma: Share of the batch in the average.

    Raises:
        ValueError: An argument is out of range; the message names it.

    Example:
        >>> import torch
        >>> u, v = (torch.nn.functional.normalize(torch.randn(8, 4), dim=1).requires_grad_() for _ in range(2))
        >>> SogCLRLoss(100)(u, v, torch.tensor(14.3), index=torch.arange(8)).backward()

    Source:
        arXiv 2202.12387, algorithm 1.
    """

    needs_index = True

    def __init__(self, num_samples: int, *, gamma: float = 0.8) -> None:
        super().__init__()
        whole("num_samples", num_samples)
        self.first_gamma = number("gamma", gamma, "a number in [0, 1]", least=0.0)
        # log u of every image and text; minus infinity: not seen yet.
        self.register_buffer("log_u", torch.full((2, num_samples), -math.inf))
        self.log_u: Tensor

    @property
    def gamma(self) -> float:
        """Share of the batch now."""
        return self.first_gamma

    def forward(
        self,
        image_features: Float[Tensor, "batch dim"],
        text_features: Float[Tensor, "batch dim"],
        logit_scale: Float[Tensor, ""],
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
        *,
        index: Int[Tensor, " batch"],
    ) -> Any:
        """Return the loss, and in training mode move the averages of the samples in ``index``.

        Raises:
            ValueError: ``index`` is not one number below ``num_samples`` a pair.
        """
        self._check(index, len(image_features))
        log_g = log_ratios(image_features, text_features, logit_scale)
        log_u = self._averages(log_g.detach(), index)
        loss = self._loss(log_g, log_u, logit_scale.reshape(()))
        return {"contrastive_loss": loss} if output_dict else loss

    def _check(self, index: Tensor | None, batch: int) -> None:
        """On an accelerator looking at numbers makes the host wait; there an index beyond the end ends the process."""
        count = self.log_u.shape[1]
        if index is None or index.shape != (batch,):
            came = "none" if index is None else f"shape {tuple(index.shape)}"
        elif index.device.type == "cpu" and not bool(((index >= 0) & (index < count)).all()):
            came = f"numbers from {int(index.min())} to {int(index.max())}"
        else:
            return
        raise ValueError(f"index: expected {batch} numbers below num_samples {count}, got {came}")

    def _averages(self, log_g: Tensor, index: Tensor) -> Tensor:
        kept = self.log_u[:, index]
        mixed = torch.logaddexp(kept + _log(1 - self.gamma), log_g + _log(self.gamma))
        now = torch.where(kept == -math.inf, log_g, mixed)
        if self.training:
            self.log_u[:, index] = now
        return now

    def _loss(self, log_g: Tensor, log_u: Tensor, scale: Tensor) -> Tensor:
        return (log_g - torch.logaddexp(log_u, log_u.new_tensor(math.log(EPSILON)))).exp().mean(
            1
        ).sum() / scale.detach()


class FastCLIPLoss(SogCLRLoss):
    """FastCLIP: SogCLR whose share of the batch falls from 1 by a cosine; v3 also learns the temperature.

    Args:
        num_samples: n.
        version: ``"v1"`` (the temperature gets no gradient) or ``"v3"``.
        gamma: Share of the batch after the cosine.
        gamma_epochs: Epochs of the cosine.
        rho: ρ of v3.

    Raises:
        ValueError: An argument is out of range; the message names it.

    Example:
        >>> import torch
        >>> u, v = (torch.nn.functional.normalize(torch.randn(8, 4), dim=1).requires_grad_() for _ in range(2))
        >>> loss = FastCLIPLoss(100, gamma_epochs=4)
        >>> loss.set_epoch(4)
        >>> loss(u, v, torch.tensor(14.3), index=torch.arange(8)).backward()
        >>> round(loss.gamma, 6)
        0.2

    Source:
        arXiv 2407.01445, algorithm 1 and equation RGCL-g.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        version: Literal["v1", "v3"] = "v3",
        gamma: float = 0.2,
        gamma_epochs: int = 16,
        rho: float = 8.5,
    ) -> None:
        super().__init__(num_samples, gamma=gamma)
        one_of("version", version, ("v1", "v3"))
        self.version, self.rho, self.epoch = version, rho, 0
        self.gamma_epochs = whole("gamma_epochs", gamma_epochs)

    def set_epoch(self, epoch: int, steps_per_epoch: int | None = None) -> None:
        """Enter an epoch, counted from 0."""
        self.epoch = epoch

    @property
    def gamma(self) -> float:
        """1 in the first epoch, then a cosine down to the last share."""
        return 1.0 - cosine_ramp(self.epoch, self.gamma_epochs, 1.0 - self.first_gamma)

    def _loss(self, log_g: Tensor, log_u: Tensor, scale: Tensor) -> Tensor:
        if self.version == "v1":
            return super()._loss(log_g, log_u, scale)
        # The first term gives s its gradient too, through g.
        return super()._loss(log_g, log_u, scale) + (self.rho + log_u.mean(1).sum() / 2) / scale


class NeuCLIPLoss(nn.Module):
    """NeuCLIP: e^{−a}(ε + g) + a − 1, whose minimum over a is log(ε + g), with a from m learned prototypes.

    Args:
        embed_dim: d.
        prototypes: m.
        steps: Inner AdaGrad steps a call.
        lr: Their rate.
        restart_every: Calls between two restarts of the prototypes from the latest m embeddings.
        rho: ρ of the temperature, as in FastCLIP; ``None``: it gets no gradient of its own.

    Raises:
        ValueError: ``steps`` or ``restart_every`` is below 1.

    Example:
        >>> import torch
        >>> u, v = (torch.nn.functional.normalize(torch.randn(8, 4), dim=1).requires_grad_() for _ in range(2))
        >>> NeuCLIPLoss(4, prototypes=8)(u, v, torch.tensor(14.3)).backward()

    Source:
        arXiv 2511.08417, section 4.
    """

    needs_index = False

    def __init__(
        self,
        embed_dim: int,
        *,
        prototypes: int = 1024,
        steps: int = 10,
        lr: float = 0.1,
        restart_every: int = 500,
        rho: float | None = None,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng():
            self.image, self.text = (PartitionPrototypes(embed_dim, prototypes) for _ in range(2))
        self.requires_grad_(False)
        self.steps, self.restart_every = whole("steps", steps), whole("restart_every", restart_every)
        self.lr, self.rho, self.calls = lr, rho, 0
        self.latest: list[Tensor] = []
        self._begin()

    def _begin(self) -> None:
        self.optimizer = torch.optim.Adagrad([self.image.weight, self.text.weight], lr=self.lr)

    def forward(
        self,
        image_features: Float[Tensor, "batch dim"],
        text_features: Float[Tensor, "batch dim"],
        logit_scale: Float[Tensor, ""],
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
    ) -> Any:
        """Return the loss, and in training mode fit the prototypes to the batch first."""
        u, v, scale = image_features.detach().float(), text_features.detach().float(), logit_scale.detach().reshape(())
        log_g = log_ratios(image_features, text_features, logit_scale)
        positive = scale * (u * v).sum(1)
        if self.training:
            self._keep(u, v)
            self._fit(u, v, scale, positive, log_g.detach())
        with torch.no_grad():
            a = self._a(u, v, scale, positive)
        ratio = torch.logaddexp(log_g, log_g.new_tensor(math.log(EPSILON))) - a
        loss = ratio.exp().mean(1).sum() / scale
        if self.rho is not None:
            loss = loss + (self.rho + a.mean(1).sum() / 2) / logit_scale.reshape(())
        return {"contrastive_loss": loss} if output_dict else loss

    def _a(self, u: Tensor, v: Tensor, scale: Tensor, positive: Tensor) -> Tensor:
        return torch.stack([self.image(u, scale) - positive, self.text(v, scale) - positive])

    def _keep(self, u: Tensor, v: Tensor) -> None:
        """Remember the latest m embeddings of the other modality, and restart from them when it is time."""
        others = torch.stack([v, u])
        count = len(self.image.weight)
        held = torch.cat([*self.latest, others], 1)[:, -count:]
        self.latest = [held]
        if self.calls % self.restart_every == 0:
            for head, other in zip((self.image, self.text), held, strict=True):
                head.start_from(other, other.new_zeros(()))
            self._begin()
        self.calls += 1

    def _fit(self, u: Tensor, v: Tensor, scale: Tensor, positive: Tensor, log_g: Tensor) -> None:
        weights = [self.image.weight, self.text.weight]
        for weight in weights:
            weight.requires_grad_(True)
        with torch.enable_grad():
            for _ in range(self.steps):
                self.optimizer.zero_grad()
                a = self._a(u, v, scale, positive)
                ((log_g - a).clamp(max=20).exp() + a - 1).mean(1).sum().backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
        for weight in weights:
            weight.requires_grad_(False)


def log_ratios(
    image_features: Float[Tensor, "batch dim"], text_features: Float[Tensor, "batch dim"], logit_scale: Tensor
) -> Float[Tensor, "2 batch"]:
    """Return log g_i of images and of texts, g_i = mean_{j≠i} e^{s(u_i·v_j − u_i·v_i)}.

    Raises:
        ValueError: A single pair has no others.
    """
    if len(image_features) < 2:
        raise ValueError(f"image_features: expected at least two pairs, got {len(image_features)}")
    A = logit_scale.reshape(()) * image_features.float() @ text_features.float().mT
    pairs = A.diagonal()
    others = A.masked_fill(torch.eye(len(A), dtype=torch.bool, device=A.device), -math.inf)
    both = torch.stack([others.logsumexp(1), others.logsumexp(0)])
    return both - pairs - math.log(len(A) - 1)


def _log(share: float) -> float:
    return math.log(share) if share > 0 else -math.inf
