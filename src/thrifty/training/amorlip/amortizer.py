"""The amortised partition functions: two small networks, their slow copies, and how they learn.

Stage I of arXiv 2505.18983 (algorithm 1): the networks are fitted to log Z of the batch, mixed with what the network
of the previous epoch says, on features without gradient. All on the mean scale, log(λ / N), so that a short last
batch, another batch size or more ranks do not change what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.checks import one_of, whole
from thrifty.training.amorlip.admission import check_finite, check_pair, check_scale, check_width
from thrifty.training.amorlip.config import AmorLIPConfig
from thrifty.training.amorlip.networks import make_network
from thrifty.training.amorlip.objectives import amortization_objective
from thrifty.training.amorlip.partition import (
    BatchPartition,
    Coefficients,
    auto_pos_coef,
    batch_log_partition,
)
from thrifty.training.amorlip.precision import as_number, autocast_off, wide
from thrifty.training.amorlip.ring import Group, broadcast_, mean_, size_of
from thrifty.training.amorlip.schedules import cosine_ramp, mix
from thrifty.training.amorlip.states import check_state

#: The fit ends after so many consecutive losses that hardly change.
PATIENCE = 5

Pair = tuple[Tensor, Tensor]  # of the images, of the texts


class PartitionAmortizer(nn.Module):
    """Predicts each sample's log-partition function from its embedding alone.

    Its parameters never require a gradient outside of its own fit, so that an optimizer or DDP that meets the module
    leaves them alone.

    Args:
        embed_dim: d, the width of the embeddings.
        config: The settings.
        num_samples: n of the data set, for ``pos_coef="auto"``.
        group: Ranks that fit one network together.
        **overrides: Single settings of :class:`AmorLIPConfig`.

    Raises:
        ValueError: A setting is out of range.

    Example:
        >>> import torch
        >>> u, v = (torch.nn.functional.normalize(torch.randn(32, 8), dim=1) for _ in range(2))
        >>> amortizer = PartitionAmortizer(8, amor_steps=100)
        >>> target, _ = amortizer.fit_batch(u, v, 10.0)
        >>> found, _ = amortizer.predict(u, v, 10.0, which="online")
        >>> (found - target).square().mean() < target.var()
        tensor(True)

    Source:
        arXiv 2505.18983, algorithm 1, stage I.
    """

    def __init__(
        self,
        embed_dim: int,
        config: AmorLIPConfig | None = None,
        *,
        num_samples: int | None = None,
        group: Group = None,
        **overrides: Any,
    ) -> None:
        super().__init__()
        self.config = (config or AmorLIPConfig()).with_overrides(**overrides)
        self.embed_dim, self.group = whole("embed_dim", embed_dim), group
        self.num_samples = None if num_samples is None else whole("num_samples", num_samples)
        self.online, self.target, self.previous = (self._networks() for _ in range(3))
        self._learned = list(self.online.parameters())
        self.epoch: int | None = None
        self.starts = 0  # of the online networks
        self.steps = 0  # of the towers
        self.calls = 0  # of the loss, in the step that is under way
        self.fitted = self.has_previous = False
        self._start()

    def _networks(self) -> nn.ModuleDict:
        c = self.config
        with torch.random.fork_rng():
            pair = {
                name: make_network(c.network, self.embed_dim, c.hidden_factor, c.prototypes, c.scale_inputs)
                for name in ("image", "text")
            }
        return nn.ModuleDict(pair).requires_grad_(False)

    def _start(self) -> None:
        """Draw the online networks anew, make their Adam, and let the averaged ones begin as their copy."""
        generator = torch.Generator().manual_seed(1_000_003 * self.config.seed + self.starts)
        for network in self.online.values():
            network.reset(generator)  # type: ignore[operator]
        broadcast_(list(self.online.parameters()), self.group)
        copy_(self.target, self.online)
        self.optimizer = self._adam()
        self.starts, self.fitted, self.fresh = self.starts + 1, False, True

    def _adam(self) -> torch.optim.Adam:
        return torch.optim.Adam(self._learned, lr=self.config.amor_lr, fused=True)

    @property
    def beta(self) -> float:
        """β of this epoch: the previous network's share of a target; 0 as long as there is none."""
        if not self.config.use_prev or not self.has_previous or self.epoch is None:
            return 0.0
        return cosine_ramp(self.epoch, self.config.ramp, self.config.beta_max)

    @property
    def decay(self) -> float:
        """α of this epoch."""
        if self.config.use_prev:
            return self.config.ema_decay
        return cosine_ramp(self.epoch or 0, self.config.ramp, self.config.beta_max)

    def coefficients(self, batch: int) -> Coefficients:
        """Return κ for a batch of all ranks' samples."""
        if self.config.negatives_only:
            return Coefficients(0.0)
        return Coefficients(self.pos_coef(batch))

    def pos_coef(self, batch: int) -> float:
        """Return κ."""
        if self.config.pos_coef != "auto":
            return float(self.config.pos_coef)
        if self.num_samples is not None and not self.training:  # what is only looked at may be larger
            batch = min(batch, self.num_samples)
        return auto_pos_coef(batch, self.num_samples)

    def start_epoch(self, epoch: int) -> None:
        """Enter an epoch: keep the averaged networks as the previous ones, and begin anew where that is due.

        Called again for the epoch that it is in, as after a resume, it does nothing.

        Raises:
            ValueError: ``epoch`` is negative.
        """
        if whole("epoch", epoch, least=0, what="an epoch") == self.epoch:
            return
        first, self.epoch = self.epoch is None, epoch
        if self.fitted:
            copy_(self.previous, self.target)
            self.has_previous = True
        every = self.config.reinit_every
        if not first and every and epoch % every == 0:
            self._start()

    def predict(
        self,
        image_features: Float[Tensor, "batch dim"],
        text_features: Float[Tensor, "batch dim"],
        logit_scale: Float[Tensor, ""] | float = 1.0,
        *,
        which: str = "target",
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Return log λ̄ = log(λ/N) of every image and every text.

        Args:
            image_features: u.
            text_features: v.
            logit_scale: s; the MLP looks at it only with ``scale_inputs``.
            which: ``"target"`` (averaged), ``"online"`` or ``"previous"`` (of the epoch before).

        Raises:
            ValueError: There are no such networks, or the features are of another width.
        """
        one_of("which", which, ("target", "online", "previous"))
        for name, features in (("image_features", image_features), ("text_features", text_features)):
            check_width(name, features, self.embed_dim)
        networks = {"target": self.target, "online": self.online, "previous": self.previous}[which]
        with torch.no_grad(), autocast_off(image_features):
            u, v = wide(image_features.detach()), wide(text_features.detach())
            return self._ask(networks, u, v, as_number(logit_scale, u))

    @staticmethod
    def _ask(networks: nn.ModuleDict, u: Tensor, v: Tensor, scale: Tensor) -> Pair:
        weight = next(networks.parameters())
        answers = (networks[name](x.to(weight), scale.to(weight)) for name, x in (("image", u), ("text", v)))
        image, text = (answer.to(u) for answer in answers)
        return image, text

    def mixed(self, u: Tensor, v: Tensor, scale: Tensor, batch: Pair) -> Pair:
        """Return log(β λ̄_previous + (1 − β) Z̄) of images and texts (equation 12)."""
        if not self.beta:
            return batch
        image, text = (
            mix(previous, now, self.beta)
            for previous, now in zip(self._ask(self.previous, u, v, scale), batch, strict=True)
        )
        return image, text

    def fit_batch(
        self,
        image_features: Float[Tensor, "batch dim"],
        text_features: Float[Tensor, "batch dim"],
        logit_scale: Float[Tensor, ""] | float,
        *,
        logit_bias: Float[Tensor, ""] | float = 0.0,
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Fit the networks to one batch, and return the targets, log Z/N of images and texts (mixed, where β > 0).

        Raises:
            ValueError: The features do not fit together, hold NaN or are more than ``num_samples``, a pair is alone, or
                the scale is not positive.
        """
        ranks = size_of(self.group)
        check_pair(image_features, text_features, self.embed_dim, ranks)
        check_finite("image_features", image_features)
        check_finite("text_features", text_features)
        check_scale(logit_scale)
        auto_pos_coef(len(image_features) * ranks, self.num_samples)
        with torch.no_grad(), autocast_off(image_features):
            u, v = wide(image_features.detach()), wide(text_features.detach())
            scale = as_number(logit_scale, u)
            found = batch_log_partition(
                u, v, scale, coefficients=self.coefficients(len(u) * ranks), logit_bias=logit_bias,
                chunk_size=self.config.chunk_size, group=self.group,
            )  # fmt: skip
            targets = self.mixed(u, v, scale, found.mean_scale())
            self.fit(u, v, scale, found, targets)
        return targets

    def fit(
        self, u: Tensor, v: Tensor, scale: Tensor, batch: BatchPartition, targets: Pair, positive: Tensor | None = None
    ) -> Tensor:
        """Take the Adam steps of one fit on fixed features and targets; several ranks average their gradients.

        Args:
            u: Images, without gradient.
            v: Texts.
            scale: s.
            batch: The batch's own partition functions.
            targets: What is fitted, on the mean scale.
            positive: log κ e^{A_ii} on the mean scale, where the networks fit the negatives alone.

        Returns:
            The loss before the last step.
        """
        config, parameters = self.config, self._learned
        known = [target.isfinite() for target in targets]  # a row all of whose negatives are its duplicates is not
        if self.fresh:
            self._start_from(u, v, scale, targets)
        own, before, quiet = batch.mean_scale(), None, 0
        for parameter in parameters:
            parameter.requires_grad_(True)
        try:
            with torch.enable_grad():
                for _ in range(config.amor_steps):
                    self.optimizer.zero_grad()
                    loss = self._objective(u, v, scale, targets, own, known, positive)
                    loss.backward()  # type: ignore[no-untyped-call]
                    gradients = [p.grad for p in parameters if p.grad is not None]
                    total = loss.detach()
                    mean_([*gradients, total], self.group)
                    nn.utils.clip_grad_norm_(parameters, 1.0)
                    self.optimizer.step()
                    if config.amor_steps > PATIENCE and config.amor_tol:
                        now = float(total)
                        quiet = quiet + 1 if before is not None and abs(now - before) < config.amor_tol else 0
                        before = now
                        if quiet >= PATIENCE:
                            break
        finally:
            for parameter in parameters:
                parameter.requires_grad_(False).grad = None
        self.fitted = True
        return total

    def _objective(
        self,
        u: Tensor,
        v: Tensor,
        scale: Tensor,
        targets: Pair,
        own: Pair,
        known: list[Tensor],
        positive: Tensor | None,
    ) -> Tensor:
        said = self._ask(self.online, u, v, scale)
        total = u.new_zeros(())
        for target, answer, batch, finite in zip(targets, said, own, known, strict=True):
            total = total + amortization_objective(
                torch.where(finite, target, answer.detach()), answer, self.config.objective,
                log_batch=torch.where(finite, batch, answer.detach()), log_positive=positive,
                div_reg=self.config.div_reg, official_scaling=self.config.official_scaling,
            )  # fmt: skip
        return total

    def _start_from(self, u: Tensor, v: Tensor, scale: Tensor, targets: Pair) -> None:
        """Begin at the level of the first targets: a λ far too small would let the towers' weights explode."""
        shifts = [
            torch.nan_to_num(target - answer, neginf=0.0).mean()
            for target, answer in zip(targets, self._ask(self.online, u, v, scale), strict=True)
        ]
        mean_(shifts, self.group)
        others = [x.clone() for x in (v, u)]
        broadcast_(others, self.group)
        for name, shift, other in zip(("image", "text"), shifts, others, strict=True):
            self.online[name].start_from(other, shift)  # type: ignore[operator]
        copy_(self.target, self.online)
        self.fresh = False

    @torch.no_grad()
    def average(self) -> None:
        """Let the slow networks follow: θ̂ ← α θ̂ + (1 − α) θ, parameters and buffers."""
        slow, fast = (list(networks.state_dict().values()) for networks in (self.target, self.online))
        torch._foreach_lerp_(slow, fast, 1 - self.decay)

    def get_extra_state(self) -> dict[str, Any]:
        """Return what a ``state_dict`` holds beside the networks: Adam's state, the counters and the settings."""
        names = ("epoch", "starts", "steps", "calls", "fitted", "has_previous", "fresh")
        held = {name: getattr(self, name) for name in names}
        return {"config": self.config.to_json(), "optimizer": self.optimizer.state_dict(), **held}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take up where :meth:`get_extra_state` left off."""
        self.optimizer = self._adam()
        self.optimizer.load_state_dict(state["optimizer"])
        for name, value in state.items():
            if name not in ("config", "optimizer"):
                setattr(self, name, value)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *more: Any) -> None:
        """Look at all of a state before any of it is taken."""
        held = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        check_state(self.state_dict(), held, self.config)
        super()._load_from_state_dict(state, prefix, *more)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow a module to its device, with Adam's moments, but not into 16 bits, where the networks learn little."""

        def moved(held: Tensor) -> Tensor:
            found = fn(held)
            return held.to(found.device) if found.is_floating_point() and found.dtype.itemsize < 4 else found

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


def copy_(to: nn.Module, of: nn.Module) -> None:
    """Copy parameters and buffers in place."""
    to.load_state_dict(of.state_dict())
