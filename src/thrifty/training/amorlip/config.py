"""The settings of AmorLIP, as one frozen dataclass that travels as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from thrifty._common.checks import number, one_of, whole
from thrifty._common.settings import Settings
from thrifty.training.amorlip.networks import NETWORKS
from thrifty.training.amorlip.objectives import OBJECTIVES, SCALED_OFFICIALLY
from thrifty.training.amorlip.partition import check_chunk_size
from thrifty.training.amorlip.schedules import rho_at

DENOMINATORS = ("combined", "target", "online")


#: Settings that networks of other shapes come of.
SHAPES = ("network", "hidden_factor", "prototypes", "scale_inputs")


@dataclass(frozen=True)
class AmorLIPConfig(Settings):
    """How partition functions are amortised, and what the towers divide by.

    Args:
        objective: What the networks are fitted with: ``"l2_log"``, ``"gkl"``, ``"js"``, ``"kl"`` or ``"neuclip"``.
        network: ``"mlp"`` (the paper's) or ``"prototypes"`` (NeuCLIP's head).
        hidden_factor: Hidden units of the MLP over the embedding's width.
        prototypes: Of the prototype network.
        scale_inputs: Give the MLP √s·x in place of x.
        encoder_lambda: The towers' denominators: ``"combined"``, β of the previous epoch's network and 1 − β of the
            batch (what the published runs do, and the only one with a bound on the weights); ``"target"``, the
            averaged network (what the paper's text says); ``"online"``, the network itself.
        use_prev: Mix the previous epoch's network into targets. Without it α follows β's schedule instead.
        pos_coef: κ, what the pair itself counts in its partition function; ``"auto"``: (B − 1)/(n − 1).
        negatives_only: The networks fit the negatives alone, and the batch's own pair is added to λ.
        beta_max: The largest share of the previous network, below 1.
        beta_epochs: Epochs over which β grows; by default half of ``epochs``, or 16.
        epochs: Of the whole run; needed for a list of ρ.
        ema_decay: α of the averaged network. It should forget within an epoch: 0.999 for thousands of steps, 0.9 for
            few.
        amor_steps: Steps on the networks each time they are fitted.
        amor_every: Optimiser steps of the towers between two fits.
        target_every: Optimiser steps between two updates of the averaged network.
        reinit_every: Epochs between two fresh starts of the networks; 0: never.
        amor_lr: Rate of the networks' Adam.
        amor_tol: The fit ends early after five consecutive losses that change by less; 0: never.
        div_reg: Share of ``l2_log`` in ``kl``, ``gkl`` and ``js``.
        official_scaling: The authors' divisor of ``kl`` and ``js`` (see ``objectives.py``), to reproduce their runs.
        rho: ρ of the temperature's objective, or a list that holds for equal shares of the epochs; ``None``: the
            plain loss.
        adaptive_tau: Let the temperature follow the log-likelihood too (FastCLIP-v3); needs ``rho``.
        max_log_weight: Above it, with ``"target"`` and ``"online"``, a weight e^x goes on as its tangent.
        normalize: Normalise the features that come.
        chunk_size: Rows of a block of logits; by default as many as a cache holds.
        seed: Of the networks' weights.

    Raises:
        ValueError: A setting is out of range; the message names it.

    Example:
        >>> config = AmorLIPConfig(objective="gkl", epochs=30, rho=[6.5, 6.5, 6.5, -8.0])
        >>> AmorLIPConfig.from_json(config.to_json()) == config
        True

    Source:
        arXiv 2505.18983, section 3 and appendix C; ``gkl``, ``"auto"`` and the mean scale are ours.
    """

    schema = "thrifty.amorlip"
    file = "amorlip.json"

    objective: Literal["l2_log", "gkl", "js", "kl", "neuclip"] = "l2_log"
    network: Literal["mlp", "prototypes"] = "mlp"
    hidden_factor: float = 0.5
    prototypes: int = 1024
    scale_inputs: bool = False
    encoder_lambda: Literal["combined", "target", "online"] = "combined"
    use_prev: bool = True
    pos_coef: float | Literal["auto"] = "auto"
    negatives_only: bool = False
    beta_max: float = 0.8
    beta_epochs: int | None = None
    epochs: int | None = None
    ema_decay: float = 0.999
    amor_steps: int = 3
    amor_every: int = 8
    target_every: int = 2
    reinit_every: int = 1
    amor_lr: float = 1e-3
    amor_tol: float = 1e-6
    div_reg: float = 0.1
    official_scaling: bool = False
    rho: float | Sequence[float] | None = None
    adaptive_tau: bool = False
    max_log_weight: float = 10.0
    normalize: bool = False
    chunk_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("objective", self.objective, OBJECTIVES)
        one_of("network", self.network, NETWORKS)
        one_of("encoder_lambda", self.encoder_lambda, DENOMINATORS)
        if self.pos_coef != "auto":
            number("pos_coef", self.pos_coef, '"auto" or a number of at least 0', least=0.0)
        number(
            "beta_max", self.beta_max, "a number in [0, 1): at 1 no batch would count any more", least=0.0, below=1.0
        )
        if not 0 <= number("ema_decay", self.ema_decay, "a number in [0, 1]") <= 1:
            raise ValueError(f"ema_decay: expected a number in [0, 1], got {self.ema_decay!r}")
        for name in ("amor_steps", "amor_every", "target_every", "prototypes"):
            whole(name, getattr(self, name))
        for name in ("beta_epochs", "epochs"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        for name in ("reinit_every", "seed"):
            whole(name, getattr(self, name), least=0)
        for name in ("hidden_factor", "amor_lr", "max_log_weight"):
            number(name, getattr(self, name), "a number above 0", least=1e-12)
        for name in ("amor_tol", "div_reg"):
            number(name, getattr(self, name), "a number of at least 0", least=0.0)
        check_chunk_size(self.chunk_size)
        if self.official_scaling and self.objective not in SCALED_OFFICIALLY:
            known = " or ".join(SCALED_OFFICIALLY)
            raise ValueError(f"official_scaling: expected the objective {known} with it, got {self.objective!r}")
        if isinstance(self.rho, Sequence):  # JSON gives a list
            object.__setattr__(self, "rho", tuple(self.rho))
        for value in self.rho if isinstance(self.rho, Sequence) else () if self.rho is None else (self.rho,):
            number("rho", value, "a number, or a list of them")
        rho_at(self.rho, 0, self.epochs)
        if self.epochs and self.beta_epochs and self.beta_epochs > self.epochs:
            raise ValueError(f"beta_epochs: expected at most the {self.epochs} epochs, got {self.beta_epochs}")
        if self.adaptive_tau and self.rho is None:
            raise ValueError("adaptive_tau: expected rho with it (0.0 for no further pressure), got none")
        if not self.use_prev and self.encoder_lambda == "combined":
            raise ValueError(
                'use_prev: expected encoder_lambda "target" or "online" without it (combined is the batch alone), '
                "got use_prev=False with combined"
            )

    @property
    def ramp(self) -> int:
        """Epochs over which β grows."""
        return self.beta_epochs or (max(1, self.epochs // 2) if self.epochs else 16)
