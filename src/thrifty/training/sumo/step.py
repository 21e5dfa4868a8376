"""One step of Algorithm 1 (arXiv 2505.24749) for a list of matrices: Blocks 1 to 4, in the paper's order.

Everything that is decided on the host (is a gradient finite, is a basis due) is read from the device in one piece.
Nothing is written before every gradient of the list has been looked at. A list of one is the single-tensor path; with
more, moments of one shape are orthogonalised as a batch and collectives are shared; :func:`batches` makes the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thrifty.training.sumo import residual
from thrifty.training.sumo.diagnostics import MomentReport, report_on
from thrifty.training.sumo.matrix import Matrix, compensation_of
from thrifty.training.sumo.orthogonal import inverse_root, orthogonalize
from thrifty.training.sumo.refresh import exhausted, is_due, refresh
from thrifty.training.sumo.residual import Residual, ResidualWatch
from thrifty.training.sumo.scaling import limit_growth, shape_scale
from thrifty.training.sumo.sharded import squared_norms, sum_over
from thrifty.training.sumo.subspace import mixed_seed
from thrifty.training.sumo.weights import apply_update, project

LIMIT_TARGETS = ("orthogonal", "update", "residual", None)

#: Numbers of projected gradient that a batch holds at once (32 MB in float32).
BATCH_NUMBERS = 1 << 23


@dataclass(frozen=True)
class Step:
    """What a step needs beside the matrices.

    Args:
        group: The options of their parameter group.
        on_nonfinite: Told the name and the state of each matrix whose gradient is not finite, before anything is
            written; if it returns, that matrix is left as it is.
        watch: Looks out for a raw residual that rules the update.
        reports: Where to write what each moment looks like, by name; ``None``: do not look.
    """

    group: dict[str, Any]
    on_nonfinite: Callable[[str, dict[str, Any]], None]
    watch: ResidualWatch
    reports: dict[str, MomentReport] | None = None

    def __call__(self, matrices: Sequence[Matrix]) -> None:
        """Update every matrix, and its state, in place."""
        due = [is_due(matrix) for matrix in matrices]
        projected = _projected([m for m, d in zip(matrices, due, strict=True) if not d])
        # One entry of G that is not finite makes a whole column of Qᵀ G so: the projection is enough to look at.
        looked_at = [m.gradient if d else projected[m] for m, d in zip(matrices, due, strict=True)]
        bad, some = _looks(matrices, looked_at)
        for matrix, is_bad in zip(matrices, bad, strict=True):
            if is_bad:
                self.on_nonfinite(matrix.name, matrix.state)
        renewed = {m for m, d, s, b in zip(matrices, due, some, bad, strict=True) if d and s and not b}
        matrices = [matrix for matrix, is_bad in zip(matrices, bad, strict=True) if not is_bad]
        if not matrices:
            return
        renewed |= exhausted(matrices, projected, renewed, self.group)
        refresh([matrix for matrix in matrices if matrix in renewed], self.group, self.group["seed"])
        projected |= _projected([matrix for matrix in matrices if matrix in renewed or matrix not in projected])

        hats = [projected[matrix] for matrix in matrices]
        moments = [_accumulate(matrix, hat, self.group) for matrix, hat in zip(matrices, hats, strict=True)]
        if self.reports is not None:
            for matrix, hat, moment in zip(matrices, hats, moments, strict=True):
                self.reports[matrix.name] = report_on(matrix, hat, moment)
        self._write(matrices, hats, _orthogonalized(moments, matrices, self.group["orthogonalizer"]))
        for matrix in matrices:
            matrix.state["step"] += 1

    def _write(self, matrices: Sequence[Matrix], hats: Sequence[Tensor], updates: Sequence[Tensor]) -> None:
        """Blocks 3 and 4: limit the growth, and write W ← W − η(α s Q O + c G_⊥) − ηλW."""
        group = self.group
        if group["limit_target"] == "orthogonal" and group["norm_growth_limit"] is not None:
            factors = _limit(matrices, squared_norms(matrices, updates, "columns").sqrt())
            updates = torch._foreach_mul(list(updates), factors.unbind())
        steps = [
            polar * (group["scale"] * shape_scale(group["adjust_lr_fn"], m.outputs, m.inputs, m.rank))
            for m, polar in zip(matrices, updates, strict=True)
        ]
        outside = residual.outside(matrices, hats, steps, group)
        self.watch.look(matrices, hats, steps, group)
        if group["limit_target"] in ("update", "residual") and group["norm_growth_limit"] is not None:
            steps, outside = _limited(matrices, steps, outside, group["limit_target"])
        sign = -1.0 if group["maximize"] else 1.0
        for matrix, hat, step, rest in zip(matrices, hats, steps, outside, strict=True):
            lr = group["lr"]
            lr = lr.to(matrix.weight.device) if isinstance(lr, Tensor) else lr
            # −α s O, plus what takes the part inside the subspace out of c·G, so that only G_⊥ remains of it.
            if rest.is_none:
                X = step * -lr
            elif isinstance(rest.coefficient, Tensor) or isinstance(lr, Tensor):
                X = (hat * (rest.coefficient * sign) - step) * lr
            else:
                X = torch.sub(hat * (rest.coefficient * sign * lr), step, alpha=lr)
            apply_update(
                matrix.weight,
                matrix.basis,
                X,
                decay=1 - lr * group["weight_decay"],
                G=None if rest.is_none else matrix.gradient,
                coefficient=0.0 if rest.is_none else rest.coefficient * (sign * lr),
                rounding=group["rounding"],
                compensation=compensation_of(matrix),
                generator=_rounding_generator(matrix),
            )


def batches(matrices: Sequence[Matrix], foreach: bool) -> list[list[Matrix]]:
    """Cut a list into batches of one device and dtype whose projected gradients fit into little memory.

    What is spread over ranks is batched in any case: it shares collectives.
    """
    cut: list[list[Matrix]] = []
    places: dict[tuple[Any, ...], int] = {}
    filled: dict[tuple[Any, ...], int] = {}
    for matrix in matrices:
        # The same on every rank: global shapes, not those of the pieces.
        numbers = matrix.rank * min(matrix.outputs, matrix.inputs)
        key = (matrix.weight.device, matrix.weight.dtype, matrix.gradient.dtype, matrix.shards is None)
        alone = not foreach and matrix.shards is None
        if alone or key not in filled or filled[key] + numbers > BATCH_NUMBERS:
            cut.append([])
            filled[key] = 0
            places[key] = len(cut) - 1
        cut[places[key]].append(matrix)
        filled[key] += numbers
    return cut


def _projected(matrices: Sequence[Matrix]) -> dict[Matrix, Tensor]:
    """Block 2, first half: Ĝ = Qᵀ G, summed over ranks where the rows are spread."""
    pieces = [project(matrix.basis, matrix.gradient) for matrix in matrices]
    return dict(zip(matrices, sum_over("rows", matrices, pieces), strict=True))


def _looks(matrices: Sequence[Matrix], tensors: Sequence[Tensor]) -> tuple[list[bool], list[bool]]:
    """Return, for each tensor, whether it holds something not finite, and whether it holds anything but zeros."""
    held = [tensor if tensor.numel() else tensor.new_zeros(1) for tensor in tensors]  # a rank may hold no rows
    # The sum of absolute values: it cannot overflow before an entry of a 32-bit tensor is about to, and is quick.
    sums = torch.stack(torch._foreach_norm(held, 1, dtype=matrices[0].basis.dtype))
    flags = torch.stack([~sums.isfinite(), sums > 0], dim=1).float()
    if any(matrix.shards for matrix in matrices):
        flags = torch.stack(sum_over(None, matrices, flags.unbind()))
    table = flags.tolist()  # the one synchronisation of a step
    return [bool(bad) for bad, _ in table], [bool(some) for _, some in table]


def _accumulate(matrix: Matrix, hat: Tensor, group: dict[str, Any]) -> Tensor:
    """Block 2: M ← μ M + Ĝ. A moment of fewer bits is rounded after it has been used."""
    moment, momentum, sign = matrix.moment, group["momentum"], -1.0 if group["maximize"] else 1.0
    if moment.dtype == hat.dtype:
        return moment.mul_(momentum).add_(hat, alpha=sign)
    wide = moment.to(hat.dtype).mul_(momentum).add_(hat, alpha=sign)
    moment.copy_(wide)
    return wide


def _orthogonalized(moments: Sequence[Tensor], matrices: Sequence[Matrix], method: str) -> list[Tensor]:
    """Block 2, second half: O = orth(M), moments of one shape as a batch; by a shared Gram matrix where M is spread."""
    results: list[Tensor] = list(moments)
    whole = [place for place, m in enumerate(matrices) if not (m.shards and m.shards.axis == "columns")]
    for shape in dict.fromkeys(moments[place].shape for place in whole):
        places = [place for place in whole if moments[place].shape == shape]
        if len(places) == 1:
            results[places[0]] = orthogonalize(moments[places[0]], method)
            continue
        batch = orthogonalize(torch.stack([moments[place] for place in places]), method)
        for place, polar in zip(places, batch.unbind(), strict=True):
            results[place] = polar
    spread = [place for place in range(len(moments)) if place not in whole]
    grams = [moments[place].double() @ moments[place].double().mT for place in spread]
    for place, S in zip(spread, sum_over("columns", [matrices[p] for p in spread], grams), strict=True):
        matrix, moment = matrices[place], moments[place]
        tolerance = min(matrix.outputs, matrix.inputs) * torch.finfo(moment.dtype).eps
        # In float64 also here: for a tiny moment the root is beyond float32.
        results[place] = (inverse_root(S, tolerance) @ moment.double()).to(moment.dtype)
    return results


def _limited(
    matrices: Sequence[Matrix], steps: Sequence[Tensor], outside: Sequence[Residual], target: str
) -> tuple[list[Tensor], list[Residual]]:
    """Keep the growth of the whole update, or of the residual alone, within the limit."""
    squares = squared_norms(matrices, steps, "columns")
    rest = torch.stack([torch.as_tensor(r.squared_norm, dtype=squares.dtype, device=squares.device) for r in outside])
    factors = _limit(matrices, (squares + rest if target == "update" else rest).sqrt()).unbind()
    shorter = [step * factor if target == "update" else step for step, factor in zip(steps, factors, strict=True)]
    return shorter, [residual_.times(factor) for residual_, factor in zip(outside, factors, strict=True)]


def _limit(matrices: Sequence[Matrix], norms: Tensor) -> Tensor:
    """Return the factors of Block 3, and remember the norms after it."""
    remembered = [matrix.state["prev_norm"] for matrix in matrices]
    factors, after = limit_growth(norms, torch.stack(remembered), matrices[0].group["norm_growth_limit"])
    torch._foreach_copy_(remembered, after.unbind())
    return factors


def _rounding_generator(matrix: Matrix) -> torch.Generator | None:
    if matrix.group["rounding"] != "stochastic" or matrix.weight.dtype != torch.bfloat16:
        return None
    offset = matrix.shards.offset if matrix.shards else 0
    generator = torch.Generator(matrix.weight.device)
    return generator.manual_seed(mixed_seed(matrix.group["seed"], matrix.index, int(matrix.state["step"]), offset, 1))
