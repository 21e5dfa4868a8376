"""The settings of a network, saved beside its weights as JSON with a schema and a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from thrifty._common.checks import flag, number, one_of, whole
from thrifty._common.settings import Settings
from thrifty.models.lrcssm.cells import CELLS
from thrifty.models.lrcssm.cells.base import Initialisation

Task = Literal["classification", "regression"]
Pooling = Literal["mean", "last", "max"]


@dataclass(frozen=True)
class LrcSSMConfig(Settings):
    """Settings of :class:`LrcSSMModel`.

    Args:
        in_channels: Width of the input.
        out_features: Classes, or values to predict.
        d_model: Width H of the network.
        d_state: State channels D of each layer.
        n_layers: Blocks L.
        cell: Name of the cell.
        task: Which loss is meant; it changes nothing in the network.
        per_step: One output a step in place of one a sequence.
        pooling: How steps become one output: ``"mean"``, ``"last"`` (valid step) or ``"max"``.
        bidirectional: Read each sequence from both ends.
        dropout: Share of activations dropped in each block while training.
        affine: Let layer norms have weights.
        standardize: Shift and scale each channel by statistics of the training data (see ``LrcSSMModel.standardize``).
        rho: Bound on the Jacobians (LRC and STC cells); ``None`` enforces none.
        elastance: Of LRC cells.
        elastance_sign: With the symmetric elastance.
        input_synapse: Of LRC cells.
        elastance_input: Of LRC cells.
        dt: Step in (0, 1].
        init: ``"standard"``, or ``"reference"`` as in the authors' code: dense layers with the fan of the wrong axis,
            LRC cells with every parameter in ±1/√D.
        solver: As in :class:`DiagonalRNN`.
        tol: Likewise.
        max_iter: Likewise.

    Raises:
        ValueError: A setting is unknown or out of its range.

    Example:
        >>> config = LrcSSMConfig(6, 4, d_state=16, rho=0.99)
        >>> LrcSSMConfig.from_json(config.to_json()) == config
        True
    """

    schema = "thrifty.lrcssm"

    in_channels: int
    out_features: int
    d_model: int = 64
    d_state: int = 64
    n_layers: int = 4
    cell: str = "lrc"
    task: Task = "classification"
    per_step: bool = False
    pooling: Pooling = "mean"
    bidirectional: bool = False
    dropout: float = 0.0
    affine: bool = False
    standardize: bool = False
    rho: float | None = None
    elastance: str = "asymmetric"
    elastance_sign: str = "positive"
    input_synapse: str = "post"
    elastance_input: bool = False
    dt: float = 1.0
    init: Initialisation = "standard"
    solver: str = "auto"
    tol: float | None = None
    max_iter: int = 100

    def __post_init__(self) -> None:
        for name in ("in_channels", "out_features", "d_model", "d_state", "n_layers"):
            object.__setattr__(
                self, name, whole(name, getattr(self, name))
            )  # NumPy's integers, as grids have them, are not JSON's
        for name in ("per_step", "bidirectional", "affine", "standardize", "elastance_input"):
            flag(name, getattr(self, name))
        one_of("cell", self.cell, CELLS)
        one_of("task", self.task, get_args(Task))
        one_of("pooling", self.pooling, get_args(Pooling))
        one_of("init", self.init, get_args(Initialisation))
        number("dropout", self.dropout, "a share in [0, 1)", least=0, below=1)

    def cell_options(self) -> dict[str, Any]:
        """Return the options that the cell takes and that were changed."""
        options: dict[str, Any] = {"dt": self.dt}
        if self.rho is not None:
            options["rho"] = self.rho
        of_lrc = {
            "elastance": "asymmetric",
            "elastance_sign": "positive",
            "input_synapse": "post",
            "elastance_input": False,
        }
        for name, default in of_lrc.items():
            if getattr(self, name) != default:
                options[name] = getattr(self, name)
        return options
