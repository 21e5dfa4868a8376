"""The settings of a network, saved beside its weights as JSON with a schema and a version."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from numbers import Integral
from typing import Any, Literal

from thrifty.models.lrcssm.cells import CELLS
from thrifty.models.lrcssm.cells.base import Initialisation, one_of

SCHEMA, VERSION = "thrifty.lrcssm", 1

Task = Literal["classification", "regression"]
Pooling = Literal["mean", "last", "max"]


@dataclass(frozen=True)
class LrcSSMConfig:
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
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name}: expected a whole number of at least 1, got {value!r}")
            object.__setattr__(self, name, int(value))  # NumPy's integers, as grids have them, are not JSON's
        for name in ("per_step", "bidirectional", "affine", "standardize", "elastance_input"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}: expected True or False, got {getattr(self, name)!r}")
        if not isinstance(self.cell, str) or self.cell not in CELLS:
            raise ValueError(f"cell: expected one of {', '.join(CELLS)}, got {self.cell!r}")
        one_of("task", self.task, Task)
        one_of("pooling", self.pooling, Pooling)
        one_of("init", self.init, Initialisation)
        if not (isinstance(self.dropout, int | float) and 0 <= self.dropout < 1):
            raise ValueError(f"dropout: expected a share in [0, 1), got {self.dropout!r}")

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

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps({"schema": SCHEMA, "version": VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> LrcSSMConfig:
        """Read settings.

        Raises:
            ValueError: It is not JSON, of another schema or version, or has a key that is unknown or missing.
        """
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"config: expected JSON, got something else: {error}") from None
        if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA or found.pop("version", None) != VERSION:
            raise ValueError(f"config: expected schema {SCHEMA!r}, version {VERSION}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(found) - known):
            raise ValueError(f"config: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
        if missing := [name for name in ("in_channels", "out_features") if name not in found]:
            raise ValueError(f"config: the key {missing[0]!r} is missing")
        return cls(**found)
