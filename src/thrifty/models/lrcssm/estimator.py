"""scikit-learn estimators on arrays as aeon has them: (n, channels, time), (n, time), or lists of unequal length."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, check_random_state

from thrifty._common import settings as as_json
from thrifty._common.files import refuse_existing, write_whole
from thrifty.models.lrcssm.fitting import Fitted, Recipe, Schedule, fit, outputs
from thrifty.models.lrcssm.network import LrcSSMModel
from thrifty.models.lrcssm.sequences import Sequences, coded_labels, from_arrays, hold_out

META, SCHEMA, VERSION = "estimator.json", "thrifty.lrcssm.estimator", 1
_KEYS = ("estimator", "n_channels_in", "classes", "scaling")


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share."""

    def __init__(
        self,
        *,
        d_model: int = 64,
        d_state: int = 64,
        n_layers: int = 2,
        cell: str = "lrc",
        rho: float | None = None,
        pooling: str = "mean",
        bidirectional: bool = False,
        dropout: float = 0.0,
        standardize: bool = True,
        epochs: int = 100,
        lr: float = 1e-3,
        batch_size: int = 16,
        schedule: Schedule = "constant",
        weight_decay: float = 0.0,
        patience: int = 30,
        validation_fraction: float = 0.15,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.d_model = d_model
        self.d_state = d_state
        self.n_layers = n_layers
        self.cell = cell
        self.rho = rho
        self.pooling = pooling
        self.bidirectional = bidirectional
        self.dropout = dropout
        self.standardize = standardize
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, data: Sequences, out_features: int, task: str, stratify: NDArray | None) -> Self:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        model = build(
            data, out_features, seed, task=task, d_model=self.d_model, d_state=self.d_state, n_layers=self.n_layers,
            cell=self.cell, rho=self.rho, pooling=self.pooling, bidirectional=self.bidirectional,
            dropout=self.dropout, standardize=self.standardize,
        )  # fmt: skip
        recipe = Recipe(
            self.epochs,
            self.lr,
            self.batch_size,
            self.schedule,
            weight_decay=self.weight_decay,
            patience=self.patience,
            seed=seed,
        )
        train, validation = hold_out(data, self.validation_fraction, seed, stratify)
        tell = _log if self.verbose else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.history_: Fitted = fit(model.to(self.device), train, validation, recipe, progress=tell)
        self.model_ = model
        self.n_channels_in_ = data.X.shape[2]
        return self

    def _outputs(self, X: Any) -> NDArray:
        check_is_fitted(self, "model_")
        data = from_arrays(X)
        if data.X.shape[2] != self.n_channels_in_:
            raise ValueError(f"X: expected {self.n_channels_in_} channels as in fit, got {data.X.shape[2]}")
        return outputs(self.model_, data).numpy()

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> None:
        """Save the fitted estimator: weights as safetensors, the rest as JSON.

        Raises:
            NotFittedError: It is not fitted.
            FileExistsError: The folder holds a model, and ``force`` is off.
        """
        check_is_fitted(self, "model_")
        refuse_existing(Path(folder, "config.json"), force)
        self.model_.save_pretrained(folder)
        classes = getattr(self, "classes_", None)
        record = {
            "estimator": type(self).__name__,
            "n_channels_in": self.n_channels_in_,
            "classes": None if classes is None else classes.tolist(),
            "scaling": self._scaling(),
        }
        write_whole(Path(folder, META), as_json.dump(record, SCHEMA, VERSION), force=True)

    def _scaling(self) -> dict[str, Any]:
        """Return how values of ``y`` are scaled."""
        return {}

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load a fitted estimator.

        Raises:
            ValueError: The folder holds another estimator.
            OSError: A file is missing.
        """
        path = Path(folder, META)
        record = as_json.parse(path.read_text(), SCHEMA, VERSION, known=_KEYS, needed=_KEYS, name=str(path))
        if record["estimator"] != cls.__name__:
            raise ValueError(f"folder: expected a {cls.__name__} in {folder}, got a {record['estimator']}")
        model = LrcSSMModel.from_pretrained(str(folder))
        names = [name for name in cls().get_params() if hasattr(model.config, name)]
        made = cls(**{name: getattr(model.config, name) for name in names})
        made.model_, made.n_channels_in_ = model, record["n_channels_in"]
        if record["classes"] is not None:
            made.classes_ = np.array(record["classes"])
        for name, value in record["scaling"].items():
            setattr(made, name, np.array(value) if isinstance(value, list) else value)
        return made


class LrcSSMClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Classify sequences with the paper's network.

    Args:
        d_model: Width of the network.
        d_state: State channels of each layer.
        n_layers: Blocks.
        cell: ``"lrc"``, ``"gru"``, ``"mgu"``, ``"lstm"``, ``"stc"`` ...
        rho: Bound on the Jacobians of LRC cells, in (0, 1]; ``None`` enforces none.
        pooling: ``"mean"``, ``"last"`` or ``"max"``.
        bidirectional: Read each sequence from both ends.
        dropout: Share of activations dropped while training.
        standardize: Shift and scale each channel by the training data's mean and deviation.
        epochs: Passes over the data at most.
        lr: Adam's rate.
        batch_size: Sequences a step.
        schedule: Of the rate: ``"constant"``, or ``"cosine"``, to zero over the epochs.
        weight_decay: Decoupled weight decay.
        patience: Epochs without a better validation score after which to stop.
        validation_fraction: Share held out to stop by; 0 trains for all epochs.
        device: ``"cpu"``, ``"cuda"`` ...
        random_state: Of initial weights, the split and the order of batches.
        verbose: Log every epoch.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.standard_normal((40, 2, 50)), np.arange(40) % 2
        >>> X[y == 1] += np.sin(np.arange(50))
        >>> model = LrcSSMClassifier(d_model=16, d_state=16, n_layers=1, epochs=30, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape
        (40, 2)

    Source:
        arXiv 2505.21717, sections 3 and 4.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on sequences (n, channels, time), (n, time) or a list of (channels, time_i), and their labels.

        Raises:
            ValueError: Shapes do not fit, a number is not finite, or there is only one class.
        """
        data = from_arrays(X, y)
        self.classes_, codes = coded_labels(y)
        return self._fit(Sequences(data.X, data.lengths, codes), len(self.classes_), "classification", codes)

    def predict_proba(self, X: Any) -> NDArray:
        """Return the probability of every class, in the order of ``classes_``."""
        return torch.softmax(torch.from_numpy(self._outputs(X)).double(), dim=-1).numpy()

    def predict(self, X: Any) -> NDArray:
        """Return the most probable class of every sequence."""
        best = self._outputs(X).argmax(-1)
        found: NDArray = self.classes_[best]
        return found


class LrcSSMRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Predict one or more values of a sequence with the paper's network. Arguments as :class:`LrcSSMClassifier`.

    Example:
        >>> X = np.random.default_rng(0).standard_normal((40, 2, 50))
        >>> model = LrcSSMRegressor(d_model=16, d_state=16, n_layers=1, epochs=2, random_state=0)
        >>> model.fit(X, X[:, 0].mean(1)).predict(X).shape
        (40,)

    Source:
        arXiv 2505.21717, section 4 (PPG-DaLiA).
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on sequences and their values, ``(n,)`` or ``(n, out)``; values are standardised inside.

        Raises:
            ValueError: Shapes do not fit, or a number is not finite.
        """
        values = np.asarray(y, dtype=np.float64)
        data = from_arrays(X, values)
        if not np.isfinite(values).all():
            raise ValueError("y: expected finite values")
        self.single_output_ = values.ndim == 1
        values = values.reshape(len(values), -1)
        self.center_, self.scale_ = values.mean(0), np.where(values.std(0) > 0, values.std(0), 1.0)
        coded = ((values - self.center_) / self.scale_).astype(np.float32)
        return self._fit(Sequences(data.X, data.lengths, coded), values.shape[1], "regression", None)

    def _scaling(self) -> dict[str, Any]:
        return {
            "center_": self.center_.tolist(), "scale_": self.scale_.tolist(), "single_output_": self.single_output_
        }  # fmt: skip

    def predict(self, X: Any) -> NDArray:
        """Return the predicted values, shaped as ``y`` was."""
        found: NDArray = self._outputs(X) * self.scale_ + self.center_
        return found[:, 0] if self.single_output_ else found


def build(data: Sequences, out_features: int, seed: int, **settings: Any) -> LrcSSMModel:
    """Return a fresh model for some data, its input channels standardised by them if the settings say so."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LrcSSMModel(data.X.shape[2], out_features, **settings)
    if model.config.standardize:
        valid = np.arange(data.X.shape[1]) < data.lengths[:, None]
        steps = data.X[valid].astype(np.float64)
        deviation = steps.std(0)
        scale = np.where(deviation > 0, deviation, 1.0)
        model.standardize(torch.from_numpy(steps.mean(0)).float(), torch.from_numpy(scale).float())
    return model


def _log(epoch: int, epochs: int, loss: float, score: float) -> None:
    import logging

    logging.getLogger(__name__).info("epoch %d of %d: loss %.4f, validation %.4f", epoch, epochs, loss, score)
