"""SUMO as a torch optimizer: Algorithm 1 (arXiv 2505.24749) for matrices, AdamW for everything else, in one object."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from thrifty.training.sumo.adamw import fresh_state, step_adamw
from thrifty.training.sumo.checkpoint import restore
from thrifty.training.sumo.diagnostics import MomentReport, report_on
from thrifty.training.sumo.matrix import Matrix, matrix_of, shape_of
from thrifty.training.sumo.options import check_group
from thrifty.training.sumo.residual import ResidualWatch
from thrifty.training.sumo.sharded import agreed, local
from thrifty.training.sumo.step import Step

#: Numbers of projected gradient that a batch holds at once (32 MB in float32).
BATCH_NUMBERS = 1 << 23


class SUMO(Optimizer):
    """Momentum in an adaptive low-rank subspace, orthogonalised exactly.

    A weight of m × n keeps (m + n)·r numbers of state: half of GaLore's at most, where AdamW keeps 2mn. Parameters with
    fewer than two dimensions, and groups with ``use_sumo=False``, are updated by AdamW. Every keyword but ``seed``,
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
        more
            buffer of the weight's size and dtype).
        foreach: Orthogonalise moments of one shape as a batch; ``None``: yes.
        maximize: Climb instead.
        stagger: Spread the refreshes of the parameters over the interval.
        use_sumo: Whether the matrices of a group are updated by SUMO.
        seed: Of the sketches and of stochastic rounding; all ranks of one run must share it.
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
        defaults = {
            name: value
            for name, value in locals().items()
            if name not in ("self", "params", "seed", "nonfinite", "diagnostics", "__class__")
        }
        if nonfinite not in ("raise", "skip"):
            raise ValueError(f'nonfinite: expected "raise" or "skip", got {nonfinite!r}')
        self.seed, self.nonfinite, self.diagnostics = seed, nonfinite, diagnostics
        self.skipped: dict[str, int] = {}
        self.reports: dict[str, MomentReport] = {}
        self._watch = ResidualWatch()
        self._warned_of_rank = False
        self._places: dict[Tensor, int] = {}
        super().__init__(params, defaults)

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
        for parameter in self.param_groups[-1]["params"]:
            self._warn_of_rank(parameter, self.param_groups[-1])

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
            ValueError: A gradient is not finite and ``nonfinite`` is ``"raise"``; the message names the parameter.
            RuntimeError: A gradient is sparse, or a weight is sharded in a way that has no sharded update.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        first = 0
        for group in self.param_groups:
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
            places = enumerate((group, p) for group in self.param_groups for p in group["params"])
            self._places = {p: index for index, (_, p) in places}
        try:
            index = self._places[parameter]
        except KeyError:
            shape = tuple(parameter.shape)
            raise KeyError(f"parameter: one of shape {shape} is not among this optimizer's parameters") from None
        group = next(group for group in self.param_groups if any(p is parameter for p in group["params"]))
        if parameter.grad is not None:
            self._step_some(group, [(index, parameter)])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint; unlike ``torch.optim``'s, state keeps its own dtype where the weights have 16 bits.

        Args:
            state_dict: From :meth:`state_dict`; ``torch.load(..., weights_only=True)`` reads it back.

        Raises:
            ValueError: Groups differ in number or size, or an option in them is out of range.
        """
        seen: dict[str, Any] = {}
        hook = self.register_load_state_dict_pre_hook(lambda _, loaded: seen.update(loaded))
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()
        for group in self.param_groups:
            check_group(group)
        restore(self, seen)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    def name_of(self, index: int) -> str:
        """Return the name of a parameter: the model's, if the optimizer was given names, else its place and shape."""
        for group in self.param_groups:
            if index < len(group["params"]):
                if "param_names" in group:
                    return str(group["param_names"][index])
                return f"parameter {index} of shape {tuple(group['params'][index].shape)}"
            index -= len(group["params"])
        raise IndexError(f"index: expected a place among the parameters, got {index} beyond the last")

    def _step_some(self, group: dict[str, Any], indexed: Sequence[tuple[int, Tensor]]) -> None:
        """Split a group's parameters between SUMO and AdamW."""
        for index, parameter in indexed:
            assert parameter.grad is not None
            if parameter.grad.is_sparse:
                raise RuntimeError(
                    f"params: {self.name_of(index)} has a sparse gradient; use Embedding(sparse=False), or "
                    "torch.optim.SparseAdam for it"
                )
        matrices = [(i, p) for i, p in indexed if group["use_sumo"] and p.ndim >= 2 and p.numel()]
        chosen = {index for index, _ in matrices}
        if matrices:
            self._step_matrices(group, matrices)
        others = [(i, p) for i, p in indexed if i not in chosen]
        if others:
            self._step_others(group, others)

    def _step_matrices(self, group: dict[str, Any], indexed: Sequence[tuple[int, Tensor]]) -> None:
        seen = [self._matrix(index, parameter, group) for index, parameter in indexed]
        step = Step(group, self.seed, self._meet_nonfinite, self._watch, self._report if self.diagnostics else None)
        for batch in _batches(seen, group["foreach"] is not False):
            step(batch)

    def _matrix(self, index: int, parameter: Tensor, group: dict[str, Any]) -> Matrix:
        state, name = self.state[parameter], self.name_of(index)
        had = "basis" in state
        before = state.get("basis")
        matrix = matrix_of(name, index, parameter, group, state)
        if had and state["basis"] is not before:
            warnings.warn(
                f"{name}: its state belonged to another shape or rank and begins anew (rank is now {matrix.rank})",
                stacklevel=6,
            )
        if group["stagger"]:
            total = sum(len(group["params"]) for group in self.param_groups)
            matrix.offset = index * group["update_proj_gap"] // total
        return matrix

    def _step_others(self, group: dict[str, Any], indexed: Sequence[tuple[int, Tensor]]) -> None:
        bad = [_not_finite(parameter) for _, parameter in indexed]
        flags = torch.stack(agreed(bad, [parameter for _, parameter in indexed])).tolist()
        kept = []
        for (index, parameter), is_bad in zip(indexed, flags, strict=True):
            state = self.state[parameter]
            if "exp_avg" not in state or local(state["exp_avg"]).shape != local(parameter).shape:
                state.clear()
                state.update(fresh_state(parameter, group))
            if is_bad:
                self._meet(self.name_of(index), state)
            else:
                kept.append((index, parameter))
        step_adamw([p for _, p in kept], [self.state[p] for _, p in kept], [i for i, _ in kept], group, self.seed)

    def _meet_nonfinite(self, matrix: Matrix) -> None:
        self._meet(matrix.name, matrix.state)

    def _meet(self, name: str, state: dict[str, Any]) -> None:
        """Raise, or count a skipped step."""
        if self.nonfinite == "raise":
            raise ValueError(
                f"{name}: its gradient holds NaN or Inf at its step {int(state['step'])}; the parameter and its state "
                'are as they were (nonfinite="skip" leaves such steps out)'
            )
        self.skipped[name] = self.skipped.get(name, 0) + 1

    def _report(self, matrix: Matrix, hat: Tensor, moment: Tensor) -> None:
        self.reports[matrix.name] = report_on(matrix, hat, moment)

    def _warn_of_rank(self, parameter: Tensor, group: dict[str, Any]) -> None:
        if self._warned_of_rank or not group["use_sumo"] or parameter.ndim < 2:
            return
        smaller = min(shape_of(parameter, group["split"]))
        if group["rank"] >= smaller:
            self._warned_of_rank = True
            warnings.warn(
                f"rank: {group['rank']} is not below the smaller side of a weight of shape {tuple(parameter.shape)}; "
                f"there it is cut to {smaller}, and SUMO becomes momentum orthogonalised in full (said once)",
                stacklevel=4,
            )


def _batches(matrices: Sequence[Matrix], foreach: bool) -> list[list[Matrix]]:
    """Cut a list into batches of one device and dtype whose projected gradients fit into little memory.

    What is spread over ranks is batched in any case: it shares collectives.
    """
    batches: list[list[Matrix]] = []
    places: dict[tuple[Any, ...], int] = {}
    filled: dict[tuple[Any, ...], int] = {}
    for matrix in matrices:
        # The same on every rank: global shapes, not those of the pieces.
        numbers = matrix.rank * min(matrix.outputs, matrix.inputs)
        key = (matrix.weight.device, matrix.weight.dtype, matrix.gradient.dtype, matrix.shards is None)
        alone = not foreach and matrix.shards is None
        if alone or key not in filled or filled[key] + numbers > BATCH_NUMBERS:
            batches.append([])
            filled[key] = 0
            places[key] = len(batches) - 1
        batches[places[key]].append(matrix)
        filled[key] += numbers
    return batches


def _not_finite(parameter: Tensor) -> Tensor:
    """Tell (as 0 or 1) whether this rank's piece of a gradient holds NaN or Inf, in one reading of it."""
    assert parameter.grad is not None
    gradient = local(parameter.grad)
    if not gradient.numel():
        return torch.zeros((), device=gradient.device)
    peak: Tensor = torch.linalg.vector_norm(gradient, ord=float("inf"))
    return (~peak.isfinite()).float()
