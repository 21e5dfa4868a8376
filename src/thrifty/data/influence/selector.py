"""Influence Distillation as a whole: embed the pool, measure landmarks, spread their scores, choose (arXiv 2505.19051).

The order of work: embeddings of the pool (once, whatever the target), gradients of landmarks and targets, kernel ridge
regression from one to the other, then rounds over the targets or weights in closed form.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Hashable, Sequence
from operator import index
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from thrifty.data.influence import landmarks as landmark_choice
from thrifty.data.influence.coefficients import optimizer_coefficients
from thrifty.data.influence.config import InfluenceConfig
from thrifty.data.influence.embeddings import JVPEmbedding
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.features import GradientFeatures
from thrifty.data.influence.gradients import ExampleGradients
from thrifty.data.influence.losses import LossFn, default_loss, is_causal
from thrifty.data.influence.parameters import ParamFilter, select_parameters, vocabulary_size
from thrifty.data.influence.regression import FitReport, KernelRidge, fit_kernel_ridge, quality
from thrifty.data.influence.results import ScoreResult, SelectionResult
from thrifty.data.influence.rows import ModelRows
from thrifty.data.influence.second_order import landmark_terms
from thrifty.data.influence.selection import choose
from thrifty.data.influence.sharding import Rows, Shard, assemble
from thrifty.data.influence.stores import Progress
from thrifty.data.influence.weights import Quadratic

_log = logging.getLogger(__name__)


class InfluenceDistillation:
    """Chooses the examples of a pool that, trained on, would lower the loss of a few target examples most.

    Args:
        model: A Hugging Face model (causal, encoder with a head, encoder-decoder, images), with or without adapters; it
            is not changed. Warm it up first: see :func:`thrifty.data.influence.warm_up`.
        optimizer: The one that warmed it up: SGD, Adam or AdamW; ``None`` for plain gradient descent. Its state is read
            here: after further steps build another selector.
        loss_fn: Model outputs and batch to one loss an example; ``None`` for the loss of the model's head.
        store: Folder in which rows are kept; a run that was killed goes on from there.
        store_dtype: Of the rows in it (``torch.bfloat16`` halves it).
        progress: Told (done, total, what).
        params, mask_numel, grad_dim, projection, num_landmarks, landmarks, embedding, kernel, damp, bandwidth,
            exact_landmarks, num_check, order, hessian, batch_size, seed: See
            :class:`thrifty.data.influence.InfluenceConfig`.

    Raises:
        ValueError: A setting is out of range, ``params`` selects nothing, or the optimizer is not this model's.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(40)]
        >>> picker = InfluenceDistillation(model, num_landmarks=16, embedding=JVPEmbedding(num_blocks=1))
        >>> len(picker.select(pool, pool[:2], k=5).indices)
        5

    Source:
        arXiv 2505.19051.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        *,
        loss_fn: LossFn | None = None,
        params: ParamFilter = "mlp-out",
        mask_numel: int | None = None,
        grad_dim: int = 32768,
        projection: Literal["srht", "rademacher"] | None = "srht",
        num_landmarks: int = 4096,
        landmarks: Literal["random", "kmeans++"] | Sequence[int] | Tensor = "random",
        embedding: JVPEmbedding = JVPEmbedding(),  # noqa: B008 (frozen)
        kernel: Literal["rbf", "linear"] = "rbf",
        damp: float = 1e-2,
        bandwidth: float | Literal["median"] = "median",
        exact_landmarks: bool = False,
        num_check: int = 0,
        order: Literal[1, 2] = 1,
        hessian: Literal["exact", "ggn"] = "exact",
        batch_size: int = 8,
        seed: int = 0,
        store: str | os.PathLike[str] | None = None,
        store_dtype: torch.dtype = torch.float32,
        progress: Progress | None = None,
    ) -> None:
        self.config = InfluenceConfig(
            params, mask_numel, grad_dim, projection, num_landmarks, landmarks, embedding, kernel, damp, bandwidth,
            exact_landmarks, num_check, order, hessian, batch_size, seed,
        )  # fmt: skip
        self.model = model
        self.parameters = select_parameters(model, params)
        self.coefficients = optimizer_coefficients(optimizer, self.parameters)
        self.features = GradientFeatures.of(self.parameters, self.coefficients, self.config)
        self._loss_fn = loss_fn or default_loss(model)
        self._causal = is_causal(model)
        self._store = None if store is None else Path(store)
        self._store_dtype = store_dtype
        self._progress = progress
        self._gradients = ExampleGradients(model, self.parameters, self._loss_fn)

    @classmethod
    def from_config(
        cls, model: nn.Module, optimizer: Optimizer | None, config: InfluenceConfig, **others: Any
    ) -> InfluenceDistillation:
        """Build it from saved settings; ``others`` are ``loss_fn``, ``store``, ``store_dtype`` and ``progress``."""
        settings = {name: getattr(config, name) for name in config.__dataclass_fields__}
        return cls(model, optimizer, **settings, **others)

    def embed(self, dataset: Any) -> Float[Tensor, "n e"]:
        """Embed a pool: one row an example, in the order of the data set.

        The result serves any target, and other models of the same family.
        """
        pool, source = self._examples(dataset, "train"), self._rows()
        return assemble(source.embeddings(pool), np.arange(len(pool)), len(pool), source.shard)

    def landmark_scores(self, train: Any, target: Any, indices: Sequence[int] | np.ndarray) -> Float[Tensor, "l m"]:
        """Return the exact scores of some pool examples against every target example, from their own gradients."""
        pool, aim, source = self._examples(train, "train"), self._examples(target, "target"), self._rows()
        rows = landmark_choice.given(indices, pool.valid, len(pool))
        scores = source.source(pool, rows, keep=False) @ source.target(aim, keep=False).T
        return scores[np.searchsorted(rows, np.asarray(indices))]

    def score(self, train: Any, target: Any, *, embeddings: Float[Tensor, "n e"] | None = None) -> ScoreResult:
        """Score every pool example against every target example.

        Args:
            train: The pool: ``datasets.Dataset``, ``DataLoader`` or list, tokenised.
            target: A few examples of what the model shall become good at.
            embeddings: Those that :meth:`embed` gave for this pool.

        Returns:
            Scores (cosines at first order; influences p at second), and how far they can be trusted.

        Raises:
            ValueError: The target is empty or wholly masked, data was tokenised for another model, a gradient or an
                embedding is not finite.
            thrifty.data.influence.StaleStoreError: The store holds something else.
        """
        config, source = self.config, self._rows()
        pool, aim = self._examples(train, "train"), self._examples(target, "target")
        _check(pool, aim)
        before = self._gradients.passes
        exact = landmark_choice.everything(config, len(pool.valid))
        mine: Rows = []
        rows, checks = pool.valid, pool.valid[:0]
        if not exact:
            mine = source.embeddings(pool) if embeddings is None else source.given(embeddings, pool)
            rows, checks = landmark_choice.pick(
                config, pool.valid, len(pool), lambda: assemble(mine, np.arange(len(pool)), len(pool), source.shard)
            )
        if config.order == 2:
            return self._second_order(source, pool, aim, rows, mine, exact)
        targets = source.target(aim)
        at_landmarks = source.source(pool, np.concatenate([rows, checks])) @ targets.T
        at_landmarks, at_checks = at_landmarks[: len(rows)], at_landmarks[len(rows) :]
        passes = source.shard.count(self._gradients.passes - before)
        scores = source.matrix(len(pool), at_landmarks.shape[1], aim)
        if exact:
            scores[torch.from_numpy(rows)] = at_landmarks
            return self._result(pool, scores, rows, FitReport(1.0, 1.0, len(rows), "exact"), None, passes)
        regression = self._fit(assemble(mine, rows, len(pool), source.shard), at_landmarks)
        for indices, embedded in mine:
            scores[torch.from_numpy(indices)] = regression.predict(embedded)
        scores = source.shard.total(scores)
        if len(checks):
            report = quality(at_checks, scores[torch.from_numpy(checks)], "held out")
        else:
            report = quality(at_landmarks, regression.leave_one_out, "leave-one-out")
        if config.exact_landmarks:
            scores[torch.from_numpy(rows)] = at_landmarks
            scores[torch.from_numpy(checks)] = at_checks
        return self._result(pool, scores, np.sort(np.concatenate([rows, checks])), report, regression, passes)

    def select(
        self,
        train: Any,
        target: Any,
        k: int,
        *,
        aggregate: Literal["round_robin", "mean"] = "round_robin",
        groups: Sequence[Hashable] | None = None,
        deduplicate: bool = False,
        embeddings: Float[Tensor, "n e"] | None = None,
    ) -> SelectionResult:
        """Choose ``k`` pool examples.

        Args:
            train: The pool, tokenised.
            target: The target examples, tokenised.
            k: How many to choose.
            aggregate: ``"round_robin"``: targets take turns, each taking its best example left; ``"mean"``: the k best
                by the mean over the targets (needed at second order).
            groups: One id a target: scores are averaged inside a group, and groups take turns.
            deduplicate: Choose only the first of pool examples with equal tokens.
            embeddings: Those that :meth:`embed` gave for this pool.

        Returns:
            Indices for ``dataset.select``, weights (1 on average), scores and a report.

        Raises:
            ValueError: ``k`` is below 1 or above what may be chosen, or what :meth:`score` raises.
        """
        pool, k = self._examples(train, "train"), index(k)
        if not 1 <= k <= len(pool):
            raise ValueError(f"k: expected 1 to {len(pool)} (the pool's size), got {k}")
        if k > (usable := len(pool.valid)):
            raise ValueError(
                f"k: expected 1 to {usable}, got {k}: of {len(pool)} examples {len(pool) - usable} have no label token"
            )
        if self.config.order == 2 and (aggregate != "mean" or groups is not None):
            raise ValueError(
                'aggregate: at order=2 examples are weighed together, so that it must be "mean", no groups'
            )
        aim = self._examples(target, "target")
        if groups is not None:
            if len(groups) != len(aim):
                raise ValueError(f"groups: expected one id a target ({len(aim)}), got {len(groups)}")
            groups = [groups[i] for i in aim.valid]
        scored = self.score(pool, aim, embeddings=embeddings)
        return choose(
            scored, k, aggregate=aggregate, groups=groups, keys=pool.keys if deduplicate else None,
            seed=self.config.seed,
        )  # fmt: skip

    def _rows(self) -> ModelRows:
        """What computes rows under the model as it is now."""
        return ModelRows(
            self.model, self.parameters, self.coefficients, self.features, self._gradients, self._loss_fn, self.config,
            Shard.current(), self._store, self._store_dtype, self._progress,
        )  # fmt: skip

    def _second_order(
        self, source: ModelRows, pool: Examples, aim: Examples, rows: np.ndarray, mine: Rows, exact: bool
    ) -> ScoreResult:
        """Influence p and the quadratic term of the whole pool, from those of the landmarks."""
        before, at, shard = self._gradients.passes, torch.from_numpy(rows), source.shard
        p, core = landmark_terms(source, pool, aim, rows)
        passes = shard.count(self._gradients.passes - before)
        scores, spread = torch.zeros(len(pool), 1), torch.zeros(len(pool), len(rows))
        if exact:
            report, regression = FitReport(1.0, 1.0, len(rows), "exact"), None
        else:
            embedded = assemble(mine, rows, len(pool), shard)
            regression, weights = self._fit(embedded, p), self._fit(embedded, torch.eye(len(rows)))
            for indices, values in mine:
                scores[torch.from_numpy(indices)] = regression.predict(values)
                spread[torch.from_numpy(indices)] = weights.predict(values)
            scores, spread = shard.total(scores), shard.total(spread)
            report = quality(p, regression.leave_one_out, "leave-one-out")
        if regression is None or self.config.exact_landmarks:
            scores[at], spread[at] = p, torch.eye(len(rows))
        return self._result(pool, scores, rows, report, regression, passes, Quadratic(core, spread.double()))

    def _fit(self, embeddings: Tensor, scores: Tensor) -> KernelRidge:
        config = self.config
        return fit_kernel_ridge(embeddings, scores, kernel=config.kernel, damp=config.damp, bandwidth=config.bandwidth)

    def _result(
        self, pool: Examples, scores: Tensor, rows: np.ndarray, report: FitReport, regression: KernelRidge | None,
        passes: int, quadratic: Quadratic | None = None,
    ) -> ScoreResult:  # fmt: skip
        excluded = np.flatnonzero(pool.supervised == 0)
        scores[torch.from_numpy(excluded)] = -torch.inf
        _log.info("scored %d examples; propagation is %s", len(pool), report.verdict)
        return ScoreResult(scores, rows, report, regression, excluded, passes, self.coefficients.lr, quadratic)

    def _examples(self, dataset: Any, name: str) -> Examples:
        if isinstance(dataset, Examples):
            return dataset
        return Examples(dataset, name, self._causal, vocabulary_size(self.model))


def _check(pool: Examples, aim: Examples) -> None:
    for examples in (pool, aim):
        if not len(examples.valid):
            raise ValueError(f"{examples.name}: no example has a label token that counts (all are -100)")
    if overlap := len(set(aim.keys) & set(pool.keys)):
        warnings.warn(f"{overlap} target examples are in the pool: they will be chosen (leakage)", stacklevel=3)
