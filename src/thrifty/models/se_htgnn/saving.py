"""A fitted estimator's folder: weights as safetensors, the rest as JSON; what marks it as whole is written last."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from thrifty._common import settings as as_json
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.runs import first_process
from thrifty.models.se_htgnn.model import CONFIG, SEHTGNN
from thrifty.models.se_htgnn.record import GraphRecord
from thrifty.models.se_htgnn.scaling import FeatureScaling

META, SCHEMA, VERSION = "estimator.json", "thrifty.se_htgnn.estimator", 2
KEYS = ("estimator", "parameters", "state", "graph", "features")

#: Parameters that a fitted model does not need, or holds itself.
_NOT_SAVED = ("type_embeddings", "prior", "random_state", "device", "verbose")


class Saved(BaseEstimator):  # type: ignore[misc]
    """Saving and loading, for the estimators."""

    model_: SEHTGNN
    objective_: nn.Module
    graph_: GraphRecord
    features_: FeatureScaling

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> None:
        """Save the fitted estimator: weights as safetensors, the rest as JSON; what marks it as whole comes last.

        Args:
            folder: Made if it is missing.
            force: Replace what is there.

        Raises:
            NotFittedError: It is not fitted.
            FileExistsError: The folder holds a model, and ``force`` is off.
        """
        check_is_fitted(self, "model_")
        refuse_existing(Path(folder, CONFIG), force)
        if not first_process():
            return
        Path(folder, CONFIG).unlink(missing_ok=True)
        parameters = {name: value for name, value in self._parameters().items() if name not in _NOT_SAVED}
        record = {
            "estimator": type(self).__name__, "parameters": parameters, "state": self._state(),
            "graph": self.graph_.to_json(), "features": self.features_.to_json(),
        }  # fmt: skip
        write_whole(Path(folder, META), as_json.dump(record, SCHEMA, VERSION, default=plain), force=True)
        self._save_more(Path(folder))
        self.model_.save_pretrained(folder, force=force)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Load a fitted estimator of this kind; :func:`load_forecaster` loads any.

        Args:
            folder: Where.
            device: Where it is to forecast.

        Raises:
            ValueError: The folder holds another estimator.
            OSError: A file is missing.
        """
        record = read_record(folder)
        if record["estimator"] != cls.__name__:
            raise ValueError(f"folder: expected a {cls.__name__} in {folder}, got a {record['estimator']}")
        parameters = record["parameters"]
        if isinstance(parameters["target"], list):
            parameters["target"] = tuple(parameters["target"])
        made = cls(**parameters, device=device)
        made.model_ = SEHTGNN.from_pretrained(folder)
        made.graph_ = GraphRecord.from_json(record["graph"])
        made.features_ = FeatureScaling.from_json(record["features"])
        made._restore(record["state"], Path(folder))
        made.objective_.to(device).eval()
        return made

    def _parameters(self) -> dict[str, Any]:
        held: dict[str, Any] = self.get_params()
        held["target"] = self.target if isinstance(self.target, str) else list(self.target)
        held["num_neighbors"] = None if self.num_neighbors is None else list(self.num_neighbors)
        return held

    # What each kind of forecast adds.
    def _state(self) -> dict[str, Any]:
        raise NotImplementedError

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        raise NotImplementedError

    def _save_more(self, folder: Path) -> None:
        """Save what is beside the network."""


def read_record(folder: str | Path) -> dict[str, Any]:
    """Return what a folder says of the estimator in it.

    Raises:
        ValueError: It is of another format.
        OSError: There is none.
    """
    path = Path(folder, META)
    return as_json.parse(path.read_text(), SCHEMA, VERSION, known=KEYS, needed=KEYS, name=str(path))


def plain(value: Any) -> Any:
    """Return a number of numpy's as Python's, which JSON can carry."""
    return value.item() if isinstance(value, np.generic) else value
