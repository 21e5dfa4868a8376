"""What the estimators share: fitting, going on after an interrupt, looking at attention.

``fit`` takes the graph as it is known; the last of its snapshots are held out to stop by. Features are standardised by
the training snapshots, and a graph that was made otherwise than the one a model was fitted to is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, check_random_state
from torch import Tensor, nn

from thrifty._common.checks import whole
from thrifty.models.se_htgnn.fitting import Fitted, Loader, Progress, Recipe, batches, fit
from thrifty.models.se_htgnn.model import SEHTGNN
from thrifty.models.se_htgnn.objectives import Decoder
from thrifty.models.se_htgnn.record import GraphRecord, contents
from thrifty.models.se_htgnn.sampling import NeighborSampler
from thrifty.models.se_htgnn.saving import Saved, plain
from thrifty.models.se_htgnn.scaling import FeatureScaling
from thrifty.models.se_htgnn.splits import Split, temporal_split
from thrifty.models.se_htgnn.temporal import HeteroTemporalData, Triple, WindowBatch

#: Parameters that may change when an interrupted run goes on.
_MAY_CHANGE = ("type_embeddings", "prior", "device", "verbose", "epochs")

#: Windows that a forecast computes at once.
AT_ONCE = 64


class Forecaster(Saved):
    """What the estimators share; the arguments of all are listed in :class:`NodeRegressor`."""

    #: By what a fit is stopped, and whether more of it is better.
    metric: ClassVar[str]
    more_is_better: ClassVar[bool]

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
        scale_features: bool = True,
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
        self.scale_features = scale_features
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
            checkpoint: File by which an interrupted run of the same settings and data goes on; it stays when the run is
                complete, so that a model that could not be saved is not lost.
            progress: Told (epoch, epochs, loss, score) after each; the lower the score, the better.

        Raises:
            ValueError: Data and settings do not fit, or the checkpoint is of another run.
            RuntimeError: The loss is no longer finite.
        """
        if self.num_neighbors is not None and len(self.num_neighbors) != self.num_layers:
            raise ValueError(
                f"num_neighbors: expected {self.num_layers} numbers, one a layer, got {list(self.num_neighbors)}"
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        chosen = split or temporal_split(
            data, self.window, whole("validation", self.validation, least=0), 0, self.horizon
        )
        self._begin(data, chosen)
        self.graph_ = GraphRecord.of(
            data, max(int(part.max()) for part in (chosen.train, chosen.validation) if len(part))
        )
        self.features_ = FeatureScaling.of(data, int(chosen.train.max())) if self.scale_features else FeatureScaling()
        known = self.features_(data)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model_ = self._build(known).to(self.device)
            self.objective_ = self._objective(seed).to(self.device)
            self.history_: Fitted = fit(
                self.objective_, self._loader(known, seed), chosen.train,
                (lambda: self._score(known, chosen.validation)) if len(chosen.validation) else None,
                Recipe(self.epochs, self.lr, self.weight_decay, self.batch_size, self.patience, seed=seed),
                run=self._run(data, chosen), checkpoint=None if checkpoint is None else Path(checkpoint),
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
        known = self._known(data)
        batch = known.windows(self._targets(data, targets), self.window, self.device)
        batch.sampled = self.num_neighbors is not None  # its forecasts rest on the running means
        return {key: w.cpu().numpy() for key, w in self.model_.attention(batch).items()}

    def _known(self, data: HeteroTemporalData) -> HeteroTemporalData:
        """Return a graph as the fitted network reads it."""
        check_is_fitted(self, "model_")
        self.graph_.check(data)
        return self.features_(data)

    def _run(self, data: HeteroTemporalData, split: Split) -> dict[str, str]:
        """Return what must be the same when an interrupted run goes on, by name."""
        held = {name: repr(plain(v)) for name, v in self._parameters().items() if name not in _MAY_CHANGE}
        parts = (("to train", split.train), ("to validate", split.validation))
        held["split"] = ", ".join(f"{len(p)} {name} from {p.min()} to {p.max()}" if len(p) else f"none {name}"
                                  for name, p in parts)  # fmt: skip
        return held | {"data": contents(data, self.model_, split.train, split.validation)}

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
        sampler = NeighborSampler(data, self._seed_type(), self.window, list(self.num_neighbors), seed=seed,
                                  horizon=self.horizon)  # fmt: skip
        return lambda targets: cast(Sequence[WindowBatch], _Pieces(sampler, targets, self.device))

    def _targets(self, data: HeteroTemporalData, targets: Sequence[int] | None) -> list[int]:
        chosen = [len(data)] if targets is None else [int(t) for t in targets]
        if not chosen:
            raise ValueError("targets: expected at least one snapshot, got none")
        return chosen

    @torch.no_grad()
    def _computed(
        self,
        data: HeteroTemporalData,
        targets: Sequence[int],
        name: str,
        compute: Callable[[WindowBatch], Tensor],
    ) -> Float[Tensor, "window node horizon out"]:
        """Return what the network gives for the nodes of a type, some windows (and, if sampled, some nodes) at a time.

        Args:
            data: The graph as the network reads it.
            targets: Target snapshots.
            name: The type.
            compute: Gives (window, node, horizon, out) of a batch.
        """
        self.objective_.eval()
        sampler = None
        if self.num_neighbors is not None:
            sampler = NeighborSampler(data, name, self.window, list(self.num_neighbors))
        found = []
        for begin in range(0, len(targets), AT_ONCE):
            some = list(targets[begin : begin + AT_ONCE])
            if sampler is None:
                found.append(compute(data.windows(some, self.window, self.device)).cpu())
                continue
            out = torch.empty(0)
            for piece in sampler(some, epoch=None):
                local = compute(piece.to(self.device)).cpu()
                assert piece.nodes is not None
                assert piece.seeds is not None
                out = local.new_empty(len(some), data.num_nodes[name], *local.shape[2:]) if not out.numel() else out
                out[:, piece.seeds] = local[:, torch.searchsorted(piece.nodes[name], piece.seeds)]
            found.append(out)
        return torch.cat(found)

    def _score(self, data: HeteroTemporalData, targets: NDArray[np.int64]) -> float:
        """Return by what a fit is stopped, the lower the better; where it is not defined, the worst that it can be."""
        found = self._evaluate(data, targets.tolist())[self.metric]
        if not np.isfinite(found):
            return 0.0 if self.more_is_better else float("inf")
        return -found if self.more_is_better else found

    # What each kind of forecast adds.
    def _seed_type(self) -> str:
        return str(self.target)

    def _begin(self, data: HeteroTemporalData, split: Split) -> None:
        raise NotImplementedError

    def _outputs(self) -> int:
        raise NotImplementedError

    def _objective(self, seed: int) -> nn.Module:
        raise NotImplementedError

    def _evaluate(self, data: HeteroTemporalData, targets: Sequence[int]) -> dict[str, float]:
        raise NotImplementedError


class _Pieces:
    """The pieces of some windows, drawn anew whenever they are gone through."""

    def __init__(self, sampler: NeighborSampler, targets: NDArray[np.int64], device: str) -> None:
        self.sampler, self.targets, self.device = sampler, targets, device
        self.epoch = int(torch.randint(2**31, ()))

    def __iter__(self) -> Iterator[WindowBatch]:
        return (piece.to(self.device) for piece in self.sampler(self.targets, self.epoch))


def _log(epoch: int, epochs: int, loss: float, score: float) -> None:
    logging.getLogger(__name__).info("epoch %d of %d: loss %.4f, validation %.4f", epoch, epochs, loss, score)
