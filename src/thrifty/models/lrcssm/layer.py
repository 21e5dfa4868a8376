"""A recurrent layer with the manners of ``nn.GRU(batch_first=True)``, solved over all steps at once."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from thrifty._common.checks import flag
from thrifty.models.lrcssm.cells import DiagonalCell, make_cell
from thrifty.models.lrcssm.cells.base import check_diagonal
from thrifty.models.lrcssm.cells.lrc import LRCCell
from thrifty.models.lrcssm.inputs import blend, check_finite, check_input, make_dt, make_mask, warn_if_unscaled
from thrifty.models.lrcssm.solvers.info import SolveInfo
from thrifty.models.lrcssm.solvers.newton import solve
from thrifty.models.lrcssm.solvers.options import SolveOptions, Solver
from thrifty.models.lrcssm.solvers.recurrence import Recurrence


class DiagonalRNN(nn.Module):
    """A non-linear recurrent layer whose sequence is solved in parallel: a drop-in for ``nn.GRU(batch_first=True)``.

    Args:
        cell: ``"lrc"``, ``"stc"``, ``"ltc"``, ``"gru"``, ``"mgu"``, ``"lstm"``, ``"lrc-complex"``, ``"lrc-linear"``,
            ``"lrc-dense"``, or a module with ``input_size``, ``hidden_size``, ``precompute`` and ``step``
            (:class:`DiagonalCell`).
        input_size: Width n of the input; with a module its own.
        hidden_size: Number D of state channels; with a module its own.
        solver: ``"auto"``, ``"newton"``, ``"elk"``, ``"jacobi"`` or ``"sequential"``.
        tol: Relative update at which a sequence stands still; 1e-4 (single) or 1e-7 (double precision).
        max_iter: Newton iterations at most; what has not converged then is computed in order.
        bidirectional: Run a second cell from the end; outputs stand side by side, states are ``(2, batch, D)``.
        chunk: Steps solved at once; see :class:`~thrifty.models.lrcssm.SolveOptions`.
        sigma2: Damping of ``solver="elk"``.
        strict: Raise :class:`~thrifty.models.lrcssm.ConvergenceError` where the solve would go on in order.
        warm_start: Take the last solution as the first guess if the shape is the same (batches in fixed order).
        verify: Check with two random directions that the cell's Jacobian is diagonal, at the first batch.
        allow_large_dt: Accept steps above 1, where neither bound nor certificate holds.
        options: For a named cell: ``rho``, ``elastance``, ``dt``, ``dtype``, ``device`` ...

    Raises:
        ValueError: An option is unknown or out of its range.

    Example:
        >>> rnn = DiagonalRNN("lrc", 6, 32, rho=0.99)
        >>> y, h = rnn(torch.randn(4, 200, 6), lengths=torch.tensor([200, 150, 80, 3]))
        >>> y.shape, h.shape
        (torch.Size([4, 200, 32]), torch.Size([4, 32]))

    Source:
        arXiv 2505.21717, section 3.
    """

    def __init__(
        self,
        cell: str | nn.Module = "lrc",
        input_size: int | None = None,
        hidden_size: int | None = None,
        *,
        solver: Solver = "auto",
        tol: float | None = None,
        max_iter: int = 100,
        bidirectional: bool = False,
        chunk: int | None = None,
        sigma2: float = 1e8,
        strict: bool = False,
        warm_start: bool = False,
        verify: bool = False,
        allow_large_dt: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        flag("bidirectional", bidirectional)
        flag("strict", strict)
        self.options = SolveOptions(solver, tol, max_iter, chunk, sigma2, strict)
        self.cell = _as_cell(cell, input_size, hidden_size, options)
        self.back: nn.Module | None = None
        if bidirectional:
            if not isinstance(cell, str):
                raise ValueError("bidirectional: needs a second cell of the same kind; expected the name of a cell")
            self.back = _as_cell(cell, input_size, hidden_size, options)
        self.input_size: int = self.cell.input_size  # type: ignore[assignment]
        self.hidden_size: int = self.cell.hidden_size  # type: ignore[assignment]
        self.bidirectional, self.warm_start = bidirectional, warm_start
        self.verify, self.allow_large_dt = verify, allow_large_dt
        self._last: dict[str, Tensor] = {}
        self._warned = False

    @property
    def output_size(self) -> int:
        """Width of the output."""
        one: int = getattr(self.cell, "output_size", self.hidden_size)
        return 2 * one if self.bidirectional else one

    @property
    def state_dtype(self) -> torch.dtype:
        """Kind of number that states are made of."""
        return _state_dtype(self.cell)

    def forward(
        self,
        u: Float[Tensor, "batch time n"],
        h0: Num[Tensor, "batch D"] | None = None,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        dt: float | Tensor | None = None,
        guess: Num[Tensor, "batch time D"] | None = None,
        return_info: bool = False,
    ) -> Any:
        """Run the layer.

        Args:
            u: Inputs. Half precision (and autocast) is computed in the parameters' precision and cast back.
            h0: State before the first step; zeros if ``None``. Pass the last ``h`` to go on with a stream.
            lengths: Number of valid steps of each sequence. The others hold the state, so that the output of a
                sequence goes on repeating its last valid one; mask it before a loss a step.
            mask: In place of lengths: which steps are valid, (batch, time); the state is held on the others.
            dt: Step size in (0, 1], a number, (batch, time) or (batch, time, 1): irregular sampling.
            guess: First iterate of the solver.
            return_info: Also return a :class:`SolveInfo` (of the forward direction).

        Returns:
            (y, h): outputs ``(batch, time, out)`` and the last valid state ``(batch, D)``; then the info if asked for.

        Raises:
            ValueError: A shape, a dtype or a value does not fit; the message names it.
        """
        given = u
        u = check_input(u, self.input_size, _real(next(self.cell.parameters()).dtype))
        self._watch(u)
        valid, default = make_mask(u, lengths, mask), getattr(self.cell, "dt", 1.0)
        steps = make_dt(u, dt, default, allow_large=self.allow_large_dt)
        starts = self._starts(u, h0)
        if guess is not None:
            self._check_guess(u, guess)
        with torch.autocast(u.device.type, enabled=False):
            y, h, info = self._run("forward", self.cell, u, starts[0], valid, steps, guess, return_info)
            if self.back is not None:
                back = self._backwards(u, starts[1], valid, steps)
                y, h = torch.cat((y, back[0]), dim=-1), torch.stack((h, back[1]))
        y = y.to(given.dtype)
        return (y, h, info) if return_info else (y, h)

    def step(
        self, u: Float[Tensor, "batch n"], h: Num[Tensor, "batch D"], dt: float | None = None
    ) -> tuple[Float[Tensor, "batch out"], Num[Tensor, "batch D"]]:
        """Take one step of a stream: (output, state). Exportable by ``torch.export`` and ONNX.

        Args:
            u: Input of this step.
            h: State before it; begin with :meth:`initial_state`.
            dt: Step size in (0, 1]; the cell's own if ``None``.

        Raises:
            ValueError: The layer is bidirectional, or a shape or a value does not fit.
        """
        if self.bidirectional:
            raise ValueError("step: a bidirectional layer reads the future; it cannot stream")
        if u.dim() != 2 or u.shape[1] != self.input_size or h.shape != (len(u), self.hidden_size):
            raise ValueError(
                f"u, h: expected (batch, {self.input_size}) and (batch, {self.hidden_size}), "
                f"got {tuple(u.shape)} and {tuple(h.shape)}"
            )
        cell: Any = self.cell
        size = getattr(cell, "dt", 1.0) if dt is None else dt
        if not (size > 0 and (size <= 1 or self.allow_large_dt)):
            raise ValueError(f"dt: expected a step in (0, 1], got {size!r}")
        u = check_finite(u, _real(next(cell.parameters()).dtype), "u")
        pre, rho = tuple(_at_least_single(t) for t in cell.precompute(u)), getattr(cell, "rho", None)
        if isinstance(cell, LRCCell):
            h = cell.within_bound(h)
        new = cell.step(h, *pre)
        if size != 1:
            new = h + size * (new - h)
        if rho is not None:
            new = rho * new
        return _readout(cell, new, pre), new

    def initial_state(self, batch: int) -> Num[Tensor, "batch D"]:
        """Return the state before the first step: zeros."""
        device = next(self.parameters()).device
        return torch.zeros(batch, self.hidden_size, dtype=self.state_dtype, device=device)

    def _run(
        self,
        name: str,
        cell: nn.Module,
        u: Tensor,
        x0: Tensor,
        valid: Tensor | None,
        steps: float | Tensor,
        guess: Tensor | None,
        report: bool,
    ) -> tuple[Tensor, Tensor, SolveInfo]:
        rho = getattr(cell, "rho", None)
        pre = tuple(_at_least_single(t) for t in cell.precompute(u))  # type: ignore[operator]
        keep, take = blend(_at_least_single(u), valid, steps, rho)
        if isinstance(cell, LRCCell):
            x0 = cell.within_bound(x0)
        if self.verify:
            probe = x0.unsqueeze(1).expand(-1, u.shape[1], -1)
            check_diagonal(cell, probe.detach(), tuple(t.detach() for t in pre))
            self.verify = False
        if guess is None and self.warm_start and name in self._last and self._last[name].shape[:2] == u.shape[:2]:
            guess = self._last[name].to(u.device)
        problem = Recurrence(cell, pre, (u.shape[0], u.shape[1]), keep, take)
        x, info = solve(problem, x0, self.options, guess=guess, report=report)
        if self.warm_start and self.training:
            self._last[name] = x.detach()
        return _readout(cell, x, pre), x[:, -1], info

    def _backwards(self, u: Tensor, x0: Tensor, valid: Tensor | None, steps: float | Tensor) -> tuple[Tensor, Tensor]:
        """Run the second cell from the end: on reversed time, padding comes first and holds the state."""
        assert self.back is not None
        flipped = None if valid is None else valid.flip(1)
        steps = steps.flip(1) if isinstance(steps, Tensor) else steps
        y, h, _ = self._run("backward", self.back, u.flip(1), x0, flipped, steps, None, False)
        return y.flip(1), h

    def _starts(self, u: Tensor, h0: Tensor | None) -> tuple[Tensor, ...]:
        n, D, dtype = u.shape[0], self.hidden_size, self.state_dtype
        wanted = (2, n, D) if self.bidirectional else (n, D)
        if h0 is None:
            zeros = torch.zeros(n, D, dtype=dtype, device=u.device)
            return zeros, zeros
        if not isinstance(h0, Tensor):
            raise TypeError(f"h0: expected a tensor {wanted}, got {type(h0).__name__}")
        if h0.shape != wanted:
            raise ValueError(f"h0: expected shape {wanted}, got {tuple(h0.shape)}")
        if h0.is_complex() and not dtype.is_complex:
            raise ValueError(f"h0: expected a real state, got {h0.dtype}")
        h0 = check_finite(h0, dtype, "h0")
        return (h0[0], h0[1]) if self.bidirectional else (h0,)

    def _check_guess(self, u: Tensor, guess: Tensor) -> None:
        wanted = (*u.shape[:2], self.hidden_size)
        if not isinstance(guess, Tensor):
            raise TypeError(f"guess: expected a tensor {wanted}, got {type(guess).__name__}")
        if guess.shape != wanted or self.bidirectional:
            raise ValueError(f"guess: expected shape {wanted} and one direction, got {tuple(guess.shape)}")
        if guess.is_complex() and not self.state_dtype.is_complex:
            raise ValueError(f"guess: expected real states, got {guess.dtype}")

    def _watch(self, u: Tensor) -> None:
        """Say once if the inputs are far too large."""
        if not self._warned and not torch.compiler.is_compiling():
            warn_if_unscaled(u)
            self._warned = True

    def __getstate__(self) -> dict[str, Any]:
        """Leave the solution of the last batch behind when the layer is copied or pickled."""
        return {**self.__dict__, "_last": {}}


def _as_cell(cell: str | nn.Module, n: int | None, D: int | None, options: dict[str, Any]) -> nn.Module:
    if isinstance(cell, str):
        if n is None or D is None:
            raise ValueError(f"input_size, hidden_size: expected both with the cell named {cell!r}, got {n} and {D}")
        made: DiagonalCell = make_cell(cell, n, D, **options)
        return made
    missing = [name for name in ("input_size", "hidden_size", "precompute", "step") if not hasattr(cell, name)]
    if not isinstance(cell, nn.Module) or missing:
        raise TypeError(
            f"cell: expected a name or a module with input_size, hidden_size, precompute and step, got "
            f"{type(cell).__name__}" + (f" without {', '.join(missing)}" if missing else "")
        )
    if options:
        raise ValueError(f"{next(iter(options))}: options belong to named cells; give them to the cell itself")
    for name, given in (("input_size", n), ("hidden_size", D)):
        if given is not None and given != getattr(cell, name):
            raise ValueError(f"{name}: the cell has {getattr(cell, name)}, got {given}")
    return cell


def _state_dtype(cell: nn.Module) -> torch.dtype:
    found: torch.dtype | None = getattr(cell, "state_dtype", None)
    return found or torch.promote_types(next(cell.parameters()).dtype, torch.float32)


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def _at_least_single(x: Tensor) -> Tensor:
    return x.float() if x.dtype in {torch.float16, torch.bfloat16} else x


def _readout(cell: nn.Module, x: Tensor, pre: tuple[Tensor, ...]) -> Tensor:
    read = getattr(cell, "readout", None)
    return x if read is None else read(x, *pre)
