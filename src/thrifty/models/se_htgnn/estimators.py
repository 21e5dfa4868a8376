"""Estimators on temporal graphs: values, classes and links of the next snapshots.

``fit`` takes the graph as it is known; the last of its snapshots are held out to stop by. ``predict`` forecasts the
snapshot after the last, or any that are asked for, from what was before them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, check_random_state
from torch import Tensor, nn

from thrifty._common import settings as as_json
from thrifty._common.checks import whole
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.runs import first_process
from thrifty.models.se_htgnn.fitting import Fitted, Loader, Progress, Recipe, batches, fit
from thrifty.models.se_htgnn.metrics import classification_metrics, link_metrics, regression_metrics
from thrifty.models.se_htgnn.model import CONFIG, SEHTGNN
from thrifty.models.se_htgnn.objectives import ClassificationObjective, Decoder, LinkObjective, RegressionObjective
from thrifty.models.se_htgnn.sampling import NeighborSampler
from thrifty.models.se_htgnn.scaling import Scaling
from thrifty.models.se_htgnn.splits import Split, negative_edges, positive_edges, temporal_split
from thrifty.models.se_htgnn.temporal import HeteroTemporalData, Triple, WindowBatch

META, HEAD, SCHEMA, VERSION = "estimator.json", "decoder.safetensors", "thrifty.se_htgnn.estimator", 1
_KEYS = ("estimator", "parameters", "state")


class _Forecaster(BaseEstimator):  # type: ignore[misc]
    """What the estimators share.

    The arguments of all are listed in :class:`NodeRegressor`.
    """

    def __init__(
        self,
        target: Any = None,
        *,
        hidden_channels: int = 32,
        num_layers: int = 1,
        window: int = 7,
        horizon: int = 1,
        heads: int = 1,
        attention: str = "gru",
        aggr: str = "mean",
        norm: str | None = None,
        dropout: float = 0.0,
        prior: Any = None,
        type_embeddings: Mapping[str, Tensor] | None = None,
        log1p: bool = False,
        nonnegative: bool = False,
        decoder: Decoder = "dot",
        epochs: int = 200,
        lr: float = 5e-3,
        weight_decay: float = 1e-4,
        batch_size: int = 16,
        patience: int = 25,
        validation: int = 30,
        num_neighbors: Sequence[int] | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.target = target
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.window = window
        self.horizon = horizon
        self.heads = heads
        self.attention = attention
        self.aggr = aggr
        self.norm = norm
        self.dropout = dropout
        self.prior = prior
        self.type_embeddings = type_embeddings
        self.log1p = log1p
        self.nonnegative = nonnegative
        self.decoder = decoder
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.patience = patience
        self.validation = validation
        self.num_neighbors = num_neighbors
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        data: HeteroTemporalData,
        split: Split | None = None,
        *,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on a graph.

        Args:
            data: The graph; what is to be forecast is observed in its snapshots.
            split: Which target snapshots train and validate; the last ``validation`` ones validate, if ``None``.
            checkpoint: File by which an interrupted run goes on.
            progress: Told (epoch, epochs, loss, score) after each.

        Raises:
            ValueError: Data and settings do not fit.
            RuntimeError: The loss is no longer finite.
        """
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        chosen = split or temporal_split(
            data, self.window, whole("validation", self.validation, least=0), 0, self.horizon
        )
        self._begin(data, chosen)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model_ = self._build(data).to(self.device)
            self.objective_ = self._objective(seed).to(self.device)
            self.history_: Fitted = fit(
                self.objective_, self._loader(data, seed), chosen.train,
                (lambda: self._score(data, chosen.validation)) if len(chosen.validation) else None,
                Recipe(self.epochs, self.lr, self.weight_decay, self.batch_size, self.patience, seed=seed),
                run=_fingerprint(self.model_, data), checkpoint=None if checkpoint is None else Path(checkpoint),
                progress=progress or (_log if self.verbose else None),
            )  # fmt: skip
        return self

    def attention_weights(self, data: HeteroTemporalData, targets: Sequence[int] | None = None
                  ) -> dict[tuple[int, Triple], Float[np.ndarray, "window time head"]]:  # fmt: skip
        """Return the weight of every relation in every snapshot of the windows before some targets, by layer.

        Args:
            data: The graph.
            targets: Target snapshots; the one after the last, if ``None``.
        """
        check_is_fitted(self, "model_")
        batch = data.windows(self._targets(data, targets), self.window, self.device)
        return {key: w.cpu().numpy() for key, w in self.model_.attention(batch).items()}

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> None:
        """Save the fitted estimator: weights as safetensors, the rest as JSON.

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
        self.model_.save_pretrained(folder, force=force)
        self._save_more(Path(folder))
        parameters = {
            k: v for k, v in self.get_params().items() if k not in ("type_embeddings", "prior", "random_state")
        }
        parameters["target"] = list(self.target) if isinstance(self.target, tuple) else self.target
        parameters["num_neighbors"] = None if self.num_neighbors is None else list(self.num_neighbors)
        record = {"estimator": type(self).__name__, "parameters": parameters, "state": self._state()}
        write_whole(Path(folder, META), as_json.dump(record, SCHEMA, VERSION), force=True)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load a fitted estimator of this kind; :func:`load_forecaster` loads any.

        Args:
            folder: Where.

        Raises:
            ValueError: The folder holds another estimator.
            OSError: A file is missing.
        """
        path = Path(folder, META)
        record = as_json.parse(path.read_text(), SCHEMA, VERSION, known=_KEYS, needed=_KEYS, name=str(path))
        if record["estimator"] != cls.__name__:
            raise ValueError(f"folder: expected a {cls.__name__} in {folder}, got a {record['estimator']}")
        parameters = record["parameters"]
        if isinstance(parameters["target"], list):
            parameters["target"] = tuple(parameters["target"])
        made = cls(**parameters)
        made.model_ = SEHTGNN.from_pretrained(folder)
        made._restore(record["state"], Path(folder))
        made.objective_.eval()
        return made

    def _build(self, data: HeteroTemporalData) -> SEHTGNN:
        tables = {name: count for name, count in data.num_nodes.items() if name not in data.x}
        return SEHTGNN(
            data.metadata(), data.num_features(), self.hidden_channels, self._outputs(), num_layers=self.num_layers,
            window=self.window, horizon=self.horizon, heads=self.heads, attention=self.attention,  # type: ignore[arg-type]
            aggr=self.aggr, norm=self.norm, dropout=self.dropout, prior=self.prior,  # type: ignore[arg-type]
            type_embeddings=self.type_embeddings, num_nodes=tables or None,
        )  # fmt: skip

    def _loader(self, data: HeteroTemporalData, seed: int) -> Loader:
        if self.num_neighbors is None:
            return batches(data, self.window, self.device)
        sampler = NeighborSampler(data, self._seed_type(), self.window, list(self.num_neighbors), seed=seed)
        return lambda targets: cast(Sequence[WindowBatch], _Pieces(sampler, targets))

    def _targets(self, data: HeteroTemporalData, targets: Sequence[int] | None) -> list[int]:
        return [len(data)] if targets is None else [int(t) for t in targets]

    @torch.no_grad()
    def _outputs_of(self, data: HeteroTemporalData, targets: Sequence[int]) -> Tensor:
        """Return the network's outputs, (window, node, horizon, out), 64 windows at a time."""
        self.objective_.eval()
        name = self._seed_type()
        found = []
        for begin in range(0, len(targets), 64):
            some = list(targets[begin : begin + 64])
            if self.num_neighbors is None:
                found.append(self.model_(data.windows(some, self.window, self.device), name)[name].cpu())
                continue
            sampler = NeighborSampler(data, name, self.window, list(self.num_neighbors))
            out = torch.empty(0)
            for piece in sampler(some, epoch=None):
                local = self.model_(piece, name)[name]
                assert piece.nodes is not None
                assert piece.seeds is not None
                out = local.new_empty(len(some), data.num_nodes[name], *local.shape[2:]) if not out.numel() else out
                out[:, piece.seeds] = local[:, torch.searchsorted(piece.nodes[name], piece.seeds)]
            found.append(out)
        return torch.cat(found)

    def _seed_type(self) -> str:
        return str(self.target)

    def _check_target(self, data: HeteroTemporalData) -> None:
        if self.target not in data.y:
            raise ValueError(
                f"target: expected a node type with y, among {', '.join(data.y) or 'none'}, got {self.target!r}"
            )

    # What each kind of forecast adds.
    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        raise NotImplementedError

    def _outputs(self) -> int:
        raise NotImplementedError

    def _objective(self, seed: int) -> nn.Module:
        raise NotImplementedError

    def _score(self, data: HeteroTemporalData, targets: NDArray[np.int64]) -> float:
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        raise NotImplementedError

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        raise NotImplementedError

    def _save_more(self, folder: Path) -> None:
        """Save what is beside the network."""


class _Pieces:
    """The pieces of some windows, drawn anew whenever they are gone through."""

    def __init__(self, sampler: NeighborSampler, targets: NDArray[np.int64]) -> None:
        self.sampler, self.targets, self.epoch = sampler, targets, int(torch.randint(2**31, ()))

    def __iter__(self) -> Any:
        return self.sampler(self.targets, self.epoch)


class NodeRegressor(_Forecaster):
    """Forecast a number for every node of a type.

    Args:
        target: The node type (a link forecaster: the edge type).
        hidden_channels: Width d.
        num_layers: Layers.
        window: Snapshots T that a forecast is made from.
        horizon: Steps ahead to forecast.
        heads: Attention weights a relation.
        attention: The core; see :class:`SEHTGNN`.
        aggr: ``"mean"``, ``"none"``, ``"gcn"`` or ``"gat"``.
        norm: ``None``, ``"node"`` or ``"graph"``.
        dropout: Of input features.
        prior: Initial attention; see :class:`TypePrior`.
        type_embeddings: A language model's vectors of the node types.
        log1p: Learn log(1 + y): for counts that span orders of magnitude.
        nonnegative: Forecasts below 0 become 0.
        decoder: Of a link forecaster: ``"dot"`` or ``"mlp"``.
        epochs: Passes over the windows at most.
        lr: Adam's rate.
        weight_decay: Adam's.
        batch_size: Windows a step.
        patience: Epochs without a better validation score after which to stop.
        validation: Snapshots held out to stop by; 0 trains for all epochs.
        num_neighbors: Neighbours to draw for each relation, one number a layer: for graphs that do not fit.
        device: ``"cpu"``, ``"cuda"`` ...
        random_state: Of weights and of the order of steps.
        verbose: Log every epoch.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([3, 5]))}
        >>> y = torch.sin(torch.arange(20.0))[:, None].repeat(1, 4)
        >>> data = HeteroTemporalData({"a": 4}, edges, {"a": y[..., None]}, {"a": y})
        >>> model = NodeRegressor("a", hidden_channels=8, window=4, epochs=5, validation=4, random_state=0).fit(data)
        >>> model.predict(data).shape  # the next snapshot's
        (1, 4, 1)

    Source:
        arXiv 2510.18467, sections 4.4 and 5.1.
    """

    def predict(self, data: HeteroTemporalData, targets: Sequence[int] | None = None
                ) -> Float[np.ndarray, "window node horizon"]:  # fmt: skip
        """Return forecasts.

        Args:
            data: The graph; of each target, only what was before it is read.
            targets: First target snapshots; the one after the last, if ``None``.
        """
        check_is_fitted(self, "model_")
        out = self.scaling_.invert(self._outputs_of(data, self._targets(data, targets))[..., 0].double().numpy())
        return np.maximum(out, 0) if self.nonnegative else out

    def evaluate(self, data: HeteroTemporalData, targets: Sequence[int]) -> dict[str, float]:
        """Return ``mae``, ``rmse`` (means over snapshots) and ``rmse_pooled``.

        Args:
            data: The graph.
            targets: First target snapshots.
        """
        predicted = self.predict(data, targets).transpose(0, 2, 1)
        observed = data.windows(targets, self.window).y(self.target, self.horizon).transpose(1, 2).numpy()
        return regression_metrics(predicted.reshape(-1, predicted.shape[2]), observed.reshape(-1, observed.shape[2]))

    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        self._check_target(data)
        steps = np.unique(np.concatenate([split.train + k for k in range(self.horizon)]))
        self.scaling_ = Scaling.of(data.y[self.target][steps], self.log1p)

    def _outputs(self) -> int:
        return 1

    def _objective(self, seed: int) -> nn.Module:
        return RegressionObjective(self.model_, self.target, self.scaling_, self.horizon)

    def _score(self, data: HeteroTemporalData, targets: NDArray[np.int64]) -> float:
        return self.evaluate(data, targets.tolist())["mae"]

    def _state(self) -> dict[str, Any]:
        return {"scaling": self.scaling_.to_list()}

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        center, scale, log = state["scaling"]
        self.scaling_ = Scaling(center, scale, log)
        self.objective_ = self._objective(0)


class NodeClassifier(_Forecaster):
    """Forecast a class for every node of a type; arguments as in :class:`NodeRegressor`.

    Arguments as :class:`NodeRegressor`'s; classes are whole numbers in ``data.y``.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([3, 5]))}
        >>> y = (torch.arange(20) % 2)[:, None].repeat(1, 4).float()
        >>> data = HeteroTemporalData({"a": 4}, edges, {"a": y[..., None]}, {"a": y})
        >>> model = NodeClassifier("a", hidden_channels=8, window=4, epochs=5, validation=4, random_state=0).fit(data)
        >>> model.predict_proba(data).shape
        (1, 4, 1, 2)

    Source:
        arXiv 2510.18467, sections 4.4 and 5.1.
    """

    def predict_proba(self, data: HeteroTemporalData, targets: Sequence[int] | None = None
                      ) -> Float[np.ndarray, "window node horizon class"]:  # fmt: skip
        """Return the probability of each class.

        Args:
            data: The graph.
            targets: First target snapshots; the one after the last, if ``None``.
        """
        check_is_fitted(self, "model_")
        found: NDArray[np.float32] = torch.softmax(self._outputs_of(data, self._targets(data, targets)), -1).numpy()
        return found

    def predict(self, data: HeteroTemporalData, targets: Sequence[int] | None = None
                ) -> Int[np.ndarray, "window node horizon"]:  # fmt: skip
        """Return the likeliest class.

        Args:
            data: The graph.
            targets: First target snapshots; the one after the last, if ``None``.
        """
        found: NDArray[np.int64] = self.classes_[self.predict_proba(data, targets).argmax(-1)]
        return found

    def evaluate(self, data: HeteroTemporalData, targets: Sequence[int]) -> dict[str, float]:
        """Return ``macro_f1``, ``macro_recall`` and ``accuracy`` over labelled nodes.

        Args:
            data: The graph.
            targets: First target snapshots.
        """
        observed = data.windows(targets, self.window).y(self.target, self.horizon).numpy()
        known = np.isfinite(observed)
        return classification_metrics(self.predict(data, targets)[known], observed[known].astype(np.int64))

    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        self._check_target(data)
        held = data.y[self.target][split.train]
        self.classes_ = np.unique(held[torch.isfinite(held)].numpy()).astype(np.int64)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes in training, got {self.classes_.tolist()}")

    def _outputs(self) -> int:
        return len(self.classes_)

    def _objective(self, seed: int) -> nn.Module:
        return ClassificationObjective(self.model_, self.target, torch.from_numpy(self.classes_), self.horizon)

    def _score(self, data: HeteroTemporalData, targets: NDArray[np.int64]) -> float:
        return -self.evaluate(data, targets.tolist())["macro_f1"]

    def _state(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist()}

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        self.classes_ = np.array(state["classes"], dtype=np.int64)
        self.objective_ = self._objective(0)


class LinkForecaster(_Forecaster):
    """Forecast which links of an edge type the next snapshot will have; ``target`` is the triple.

    Arguments as :class:`NodeRegressor`'s.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> index = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]).repeat(1, 5)
        >>> edges = {("a", "to", "a"): Edges(index, torch.arange(5).repeat_interleave(4))}
        >>> data = HeteroTemporalData({"a": 4}, edges, {"a": torch.randn(5, 4, 2)})
        >>> model = LinkForecaster(("a", "to", "a"), window=2, epochs=2, validation=1, random_state=0)
        >>> model.fit(data).predict(data, torch.tensor([[0, 1], [1, 0]])).shape
        (2,)

    Source:
        arXiv 2510.18467, sections 4.4 and 5.1.
    """

    def predict(self, data: HeteroTemporalData, pairs: Int[Tensor, "2 pair"], target: int | None = None
                ) -> Float[np.ndarray, " pair"]:  # fmt: skip
        """Return the probability that each pair will be linked.

        Args:
            data: The graph.
            pairs: Source and destination of each.
            target: In which snapshot; the one after the last, if ``None``.
        """
        check_is_fitted(self, "model_")
        found: NDArray[np.float32] = torch.sigmoid(
            self._pair_scores(
                data, torch.as_tensor(pairs), self._targets(data, None if target is None else [target])[0]
            )
        ).numpy()
        return found

    def evaluate(self, data: HeteroTemporalData, targets: Sequence[int], *, random_state: int = 0) -> dict[str, float]:
        """Return ``auc`` and ``ap`` of links against as many pairs that are not linked, over all target snapshots.

        Args:
            data: The graph.
            targets: Target snapshots.
            random_state: Draws those pairs.
        """
        scores, linked = [], []
        for when in targets:
            rng = np.random.default_rng([random_state, int(when)])
            for pairs, label in (
                (positive_edges(data, self.target, when), 1),
                (negative_edges(data, self.target, when, rng), 0),
            ):
                if pairs.shape[1]:
                    scores.append(self._pair_scores(data, pairs, int(when)).numpy())
                    linked.append(np.full(pairs.shape[1], label))
        return link_metrics(np.concatenate([np.empty(0), *scores]), np.concatenate([np.empty(0), *linked]))

    @torch.no_grad()
    def _pair_scores(self, data: HeteroTemporalData, pairs: Tensor, target: int) -> Tensor:
        self.objective_.eval()
        names = list(dict.fromkeys((self.target[0], self.target[2])))
        z = self.model_.encode(data.windows([target], self.window, self.device), names)
        objective = cast(LinkObjective, self.objective_)
        return objective.score(z[self.target[0]][0, :, 0], z[self.target[2]][0, :, 0], pairs.to(self.device)).cpu()

    def _seed_type(self) -> str:
        return str(self.target[0])

    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        if self.target not in data.edges:
            raise ValueError(f"target: expected an edge type among {list(data.edges)}, got {self.target!r}")
        if self.horizon != 1:
            raise ValueError(f"horizon: links are forecast one step ahead, got {self.horizon}")

    def _outputs(self) -> int:
        return 1

    def _objective(self, seed: int) -> nn.Module:
        return LinkObjective(self.model_, self.target, self.hidden_channels, self.decoder, seed)

    def _score(self, data: HeteroTemporalData, targets: NDArray[np.int64]) -> float:
        auc = self.evaluate(data, targets.tolist())["auc"]
        return -auc if np.isfinite(auc) else 0.0

    def _state(self) -> dict[str, Any]:
        return {}

    def _save_more(self, folder: Path) -> None:
        from safetensors.torch import save

        decoder = cast(LinkObjective, self.objective_).decoder
        write_whole(folder / HEAD, save(dict(decoder.state_dict())), force=True)

    def _restore(self, state: Mapping[str, Any], folder: Path) -> None:
        from safetensors.torch import load_file

        self.objective_ = self._objective(0)
        cast(LinkObjective, self.objective_).decoder.load_state_dict(load_file(str(folder / HEAD)))


#: By the name that ``estimator.json`` holds.
ESTIMATORS: dict[str, Callable[..., _Forecaster]] = {
    "NodeRegressor": NodeRegressor,
    "NodeClassifier": NodeClassifier,
    "LinkForecaster": LinkForecaster,
}


def load_forecaster(folder: str | Path) -> NodeRegressor | NodeClassifier | LinkForecaster:
    """Return the fitted estimator, of whatever kind, that a folder holds.

    Args:
        folder: What ``save_pretrained`` wrote.

    Raises:
        ValueError: It holds none.
        OSError: A file is missing.

    Example:
        >>> from thrifty.models.se_htgnn import Edges
        >>> edges = {("a", "to", "a"): Edges(torch.tensor([[0, 1], [1, 2]]), torch.tensor([3, 5]))}
        >>> y = torch.sin(torch.arange(9.0))[:, None].repeat(1, 3)
        >>> data = HeteroTemporalData({"a": 3}, edges, {"a": y[..., None]}, {"a": y})
        >>> NodeRegressor("a", window=2, epochs=1, validation=2).fit(data).save_pretrained("waves", force=True)
        >>> type(load_forecaster("waves")).__name__
        'NodeRegressor'

    Source:
        The file format is this package's own.
    """
    path = Path(folder, META)
    record = as_json.parse(path.read_text(), SCHEMA, VERSION, known=_KEYS, needed=_KEYS, name=str(path))
    if record["estimator"] not in ESTIMATORS:
        raise ValueError(f"folder: expected one of {', '.join(ESTIMATORS)} in {folder}, got {record['estimator']!r}")
    found: Any = ESTIMATORS[record["estimator"]]
    return found.from_pretrained(folder)  # type: ignore[no-any-return]


def _fingerprint(model: SEHTGNN, data: HeteroTemporalData) -> str:
    """Return what settings and data hash to: a checkpoint goes on with the same ones only."""
    held = hashlib.sha256(model.config.to_json().encode())
    held.update(json.dumps([str(t) for t in data.times]).encode())
    for values in (*data.x.values(), *data.y.values(), *(e.index for e in data.edges.values())):
        held.update(np.ascontiguousarray(values.numpy()).data)
    return held.hexdigest()


def _log(epoch: int, epochs: int, loss: float, score: float) -> None:
    logging.getLogger(__name__).info("epoch %d of %d: loss %.4f, validation %.4f", epoch, epochs, loss, score)
