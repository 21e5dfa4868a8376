"""SUMO as a torch optimizer: Algorithm 1 (arXiv 2505.24749) for matrices, AdamW for everything else, in one object."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from thrifty._common.checks import flag
from thrifty.training.sumo.adamw import finite, state_for, step_adamw
from thrifty.training.sumo.checkpoint import as_ours, restore
from thrifty.training.sumo.diagnostics import MomentReport
from thrifty.training.sumo.guards import not_finite, refuse_flat, refuse_sparse
from thrifty.training.sumo.matrix import Matrix, matrix_of
from thrifty.training.sumo.options import GROUP_OPTIONS, check_group, rank_is_cut
from thrifty.training.sumo.residual import ResidualWatch
from thrifty.training.sumo.step import Step, batches


class SUMO(Optimizer):
    """Momentum in an adaptive low-rank subspace, orthogonalised exactly.

    A weight of m × n keeps (m + n)·r numbers of state, at most two thirds of GaLore's; AdamW keeps 2mn. Parameters with
    fewer than two dimensions, and groups with ``use_sumo=False``, are updated by AdamW. Every keyword but
    ``nonfinite`` and ``diagnostics`` may also be a key of a parameter group.

    Args:
        params: Parameters, named parameters, or groups; :func:`sumo_param_groups` makes good ones.
        lr: Learning rate η. With ``adjust_lr_fn="sqrt_max"`` start at 2e-3; the good value falls as 1/√rank.
        momentum: μ of the heavy-ball moment.
        weight_decay: λ, decoupled.
        rank: r of the subspace; cut to the smaller side of a weight.
        update_proj_gap: K, steps of a parameter between two refreshes of its subspace.
        scale: α on the orthogonalised part.
        adjust_lr_fn: s(m, n) on the orthogonalised part; see :func:`thrifty.training.sumo.scaling.shape_scale`.
        residual: The gradient outside the subspace: ``"raw"`` adds it, ``"none"`` drops it, ``"fira"`` adds it scaled.
        residual_scale: Factor on the residual.
        norm_growth_limit: γ, by how much the limited norm may grow from one step to the next; ``None``: no limit.
        limit_target: What is limited: ``"orthogonal"`` (as printed), ``"update"``, ``"residual"`` or ``None``.
        refresh: ``"interval"`` (every K steps), ``"energy"`` (when the subspace carries no more than
            ``energy_threshold`` of the gradient's norm; at least ten steps apart) or ``"either"``.
        energy_threshold: ς in (0, 1).
        projector: ``"randomized"`` or ``"exact"`` truncated SVD.
        oversample: Extra columns of the randomised sketch.
        power_iters: Its power iterations.
        orthogonalizer: A method of :func:`orthogonalize`.
        transport: Carry the moment into the new basis at a refresh.
        split: Number of equal parts along the outputs that are matrices of their own (fused query-key-value: 3).
        betas: Of AdamW.
        eps: Of AdamW.
        state_dtype: Of the moment; the basis is always float32 (both float64 for float64 weights).
        rounding: How weights of 16 bits are rounded: ``"nearest"``, ``"stochastic"`` (bfloat16) or ``"kahan"`` (one
            more buffer of the weight's size and dtype).
        foreach: Orthogonalise moments of one shape as a batch; ``None``: yes.
        maximize: Climb instead.
        stagger: Spread the refreshes of the parameters over the interval.
        use_sumo: Whether the matrices of a group are updated by SUMO.
        seed: Of the sketches and of stochastic rounding; all ranks of one run must share it. Checkpoints carry it.
        nonfinite: A NaN or Inf in a gradient: ``"raise"``, or ``"skip"`` that parameter's step (see ``skipped``).
        diagnostics: Fill ``reports`` in each step (slow: an SVD in float64 a matrix).

    Raises:
        ValueError: An option is out of range.

    Attributes:
        skipped: Steps that were skipped, by parameter name.
        reports: What the last step saw of each matrix's moment, by parameter name, with ``diagnostics=True``.

    Example:
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.zeros(6, 4))
        >>> optimizer = SUMO([weight], lr=0.1, rank=2, adjust_lr_fn="none", residual="none")
        >>> weight.grad = torch.ones(6, 4)
        >>> optimizer.step()
        >>> round(weight.norm().item(), 4)  # one singular direction moved by lr
        0.1

    Source:
        Refael, Smorodinsky, Tirer and Lindenbaum, NeurIPS 2025, arXiv 2505.24749, Algorithm 1.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        rank: int = 128,
        update_proj_gap: int = 200,
        scale: float = 1.0,
        adjust_lr_fn: str = "sqrt_max",
        residual: str = "raw",
        residual_scale: float = 1.0,
        norm_growth_limit: float | None = 1.1,
        limit_target: str | None = "orthogonal",
        refresh: str = "interval",
        energy_threshold: float | None = None,
        projector: str = "randomized",
        oversample: int = 8,
        power_iters: int = 2,
        orthogonalizer: str = "auto",
        transport: bool = True,
        split: int = 1,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        state_dtype: torch.dtype | str = torch.float32,
        rounding: str = "nearest",
        foreach: bool | None = None,
        maximize: bool = False,
        stagger: bool = False,
        use_sumo: bool = True,
        seed: int = 0,
        nonfinite: Literal["raise", "skip"] = "raise",
        diagnostics: bool = False,
    ) -> None:
        given = locals()
        defaults = {name: given[name] for name in GROUP_OPTIONS}
        if nonfinite not in ("raise", "skip"):
            raise ValueError(f'nonfinite: expected "raise" or "skip", got {nonfinite!r}')
        flag("diagnostics", diagnostics)
        self.nonfinite, self.diagnostics = nonfinite, diagnostics
        self.skipped: dict[str, int] = {}
        self.reports: dict[str, MomentReport] = {}
        self._watch = ResidualWatch()
        self._warned_of_rank = False
        self._had_matrices: list[bool] = []
        self._places: dict[Tensor, tuple[int, int]] = {}  # group, and place among all parameters
        super().__init__(params, defaults)

    @property
    def seed(self) -> int:
        """Of the sketches, unless a group has its own."""
        return int(self.defaults["seed"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its options are checked, and those it lacks are the optimizer's.

        Raises:
            ValueError: An option is out of range; nothing is added.
        """
        super().add_param_group(param_group)
        try:
            check_group(self.param_groups[-1])
        except (ValueError, TypeError):
            self.param_groups.pop()
            raise
        group = self.param_groups[-1]
        matrices = [p for p in group["params"] if group["use_sumo"] and p.ndim >= 2]
        self._had_matrices.append(bool(matrices))
        cut = [message for p in matrices if (message := rank_is_cut(p, group))]
        if cut and not self._warned_of_rank:
            self._warned_of_rank = True
            warnings.warn(cut[0], stacklevel=4)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Perform one step; parameters without a gradient stay as they are, and so do their clocks.

        Args:
            closure: Evaluates the model again and returns the loss.

        Raises:
            ValueError: A gradient is not finite and ``nonfinite`` is ``"raise"``; the message names the parameter,
                which is as it was; parameters before it may have been updated.
            RuntimeError: A gradient is sparse, a weight is sharded in a way that has no sharded update, or the
                weights were flattened after the optimizer was made.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        first = 0
        for place, group in enumerate(self.param_groups):
            if self._had_matrices[place]:
                refuse_flat(group["params"], place)
            self._step_some(group, [(first + i, p) for i, p in enumerate(group["params"]) if p.grad is not None])
            first += len(group["params"])
        return loss

    @torch.no_grad()
    def step_parameter(self, parameter: Tensor) -> None:
        """Perform the step of one parameter, for training loops that step in the backward pass.

        Raises:
            KeyError: The optimizer does not have it.
        """
        if parameter not in self._places:
            everyone = [(p, place) for place, group in enumerate(self.param_groups) for p in group["params"]]
            self._places = {p: (place, index) for index, (p, place) in enumerate(everyone)}
        if parameter not in self._places:
            shape = tuple(parameter.shape)
            raise KeyError(f"parameter: one of shape {shape} is not among this optimizer's parameters")
        place, index = self._places[parameter]
        if parameter.grad is not None:
            self._step_some(self.param_groups[place], [(index, parameter)])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint; unlike ``torch.optim``'s, state keeps its own dtype where the weights have 16 bits.

        Args:
            state_dict: From :meth:`state_dict`; ``torch.load(..., weights_only=True)`` reads it back. Where it and this
                optimizer know their parameters' names, and the names are the same, state goes by name; else by place.

        Raises:
            TypeError: It is none.
            ValueError: Groups differ in number or size, an option in them is out of range, or state is another kind of
                optimizer's or of weights of other shapes; nothing is loaded.
        """
        if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
            raise TypeError("state_dict: expected what state_dict() returned, with state and param_groups")
        seen: dict[str, Any] = {}

        def prepare(_: Optimizer, loaded: dict[str, Any]) -> dict[str, Any]:
            seen.update(as_ours(self, loaded))
            return seen

        hook = self.register_load_state_dict_pre_hook(prepare)  # after the user's own hooks
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        restore(self, seen)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("nonfinite", "diagnostics", "skipped", "reports", "_watch", "_warned_of_rank", "_had_matrices")
        return super().__getstate__() | {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._places = {}
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def name_of(self, index: int) -> str:
        """Return the name of a parameter: the model's, if the optimizer was given names, else its place and shape.

        Args:
            index: Its place among all parameters, counted through the groups.

        Raises:
            IndexError: There are not so many.
        """
        place = index
        for group in self.param_groups:
            if place < len(group["params"]):
                unnamed = f"parameter {index} of shape {tuple(group['params'][place].shape)}"
                return str(group["param_names"][place]) if "param_names" in group else unnamed
            place -= len(group["params"])
        raise IndexError(f"index: expected a place among the parameters, got {index}")

    def _step_some(self, group: dict[str, Any], indexed: Sequence[tuple[int, Tensor]]) -> None:
        """Split a group's parameters between SUMO and AdamW."""
        matrices: list[tuple[int, Tensor]] = []
        others: list[tuple[int, Tensor]] = []
        for index, parameter in indexed:
            assert parameter.grad is not None
            refuse_sparse(self.name_of(index), parameter.grad)
            low_rank = group["use_sumo"] and parameter.ndim >= 2 and parameter.numel()
            (matrices if low_rank else others).append((index, parameter))
        if matrices:
            self._step_matrices(group, matrices)
        if others:
            self._step_others(group, others)

    def _step_matrices(self, group: dict[str, Any], indexed: Sequence[tuple[int, Tensor]]) -> None:
        seen = [self._matrix(index, parameter, group) for index, parameter in indexed]
        step = Step(group, self._meet_nonfinite, self._watch, self.reports if self.diagnostics else None)
        for batch in batches(seen, group["foreach"] is not False):
            step(batch)

    def _matrix(self, index: int, parameter: Tensor, group: dict[str, Any]) -> Matrix:
        state, name = self.state[parameter], self.name_of(index)
        before = state.get("basis")
        matrix = matrix_of(name, index, parameter, group, state)
        if before is not None and state["basis"] is not before:
            message = f"{name}: its state was of another shape or rank and begins anew (rank is now {matrix.rank})"
            warnings.warn(message, stacklevel=6)
        if group["stagger"]:
            matrix.offset = index * group["update_proj_gap"] // sum(len(g["params"]) for g in self.param_groups)
        return matrix

    def _step_others(self, group: dict[str, Any], indexed: Sequence[tuple[int, Tensor]]) -> None:
        kept = []
        for (index, parameter), is_finite in zip(indexed, finite([p for _, p in indexed]), strict=True):
            state, name = self.state[parameter], self.name_of(index)
            if state_for(parameter, group, state):
                warnings.warn(f"{name}: its state was of another shape and begins anew", stacklevel=5)
            if is_finite:
                kept.append((index, parameter))
            else:
                self._meet_nonfinite(name, state)
        step_adamw([p for _, p in kept], [self.state[p] for _, p in kept], [i for i, _ in kept], group)

    def _meet_nonfinite(self, name: str, state: dict[str, Any]) -> None:
        """Raise, or count a skipped step."""
        if self.nonfinite == "raise":
            raise not_finite(name, int(state["step"]))
        self.skipped[name] = self.skipped.get(name, 0) + 1
