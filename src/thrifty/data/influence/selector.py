"""Influence Distillation as a whole: embed the pool, measure landmarks, spread their scores, choose (arXiv 2505.19051).

The order of work: embeddings of the pool (once, whatever the target), gradients of landmarks and targets, kernel ridge
regression from one to the other, then rounds over the targets or weights in closed form.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim import Optimizer

from thrifty.data.influence import landmarks as landmark_choice
from thrifty.data.influence.coefficients import optimizer_coefficients
from thrifty.data.influence.config import InfluenceConfig
from thrifty.data.influence.embeddings import Embedder, JVPEmbedding
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.features import GradientFeatures
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.losses import LossFn, default_loss, is_causal
from thrifty.data.influence.parameters import ParamFilter, select_parameters, without_wrappers
from thrifty.data.influence.regression import FitReport, KernelRidge, fit_kernel_ridge, quality
from thrifty.data.influence.results import ScoreResult, SelectionResult
from thrifty.data.influence.second_order import SecondOrder, landmark_terms
from thrifty.data.influence.selection import choose
from thrifty.data.influence.sharding import Rows, Shard, assemble, by_index
from thrifty.data.influence.stores import Progress, filled, pieces_of, settings_digest, tensors_digest
from thrifty.data.influence.weights import Quadratic

_log = logging.getLogger(__name__)

#: Score matrices larger than this are kept in a file, where there is a store.
IN_MEMORY = 256 * 2**20


class InfluenceDistillation:
    """Chooses the examples of a pool that, trained on, would lower the loss of a few target examples most.

    Args:
        model: A Hugging Face model (causal, encoder with a head, encoder-decoder, images), with or without adapters; it
            is not changed. Warm it up first: see :func:`thrifty.data.influence.warm_up`.
        optimizer: The one that warmed it up: SGD, Adam or AdamW; ``None`` for plain gradient descent.
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
        self._digests: dict[str, str] = {}

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
        pool = dataset if isinstance(dataset, Examples) else self._examples(dataset, "train")
        shard = Shard.current()
        return assemble(self._embed_mine(pool, shard), np.arange(len(pool)), len(pool), shard)

    def landmark_scores(self, train: Any, target: Any, indices: Sequence[int] | np.ndarray) -> Float[Tensor, "l m"]:
        """Return the exact scores of some pool examples against every target example, from their own gradients."""
        pool, aim = self._examples(train, "train"), self._examples(target, "target")
        rows = landmark_choice.given(indices, pool.valid, len(pool))
        source = self._feature_rows(pool, rows, "landmarks", self.features.source, keep=False)
        scores = source @ self._feature_rows(aim, aim.valid, "target", self.features.target, keep=False).T
        place = {int(row): i for i, row in enumerate(rows)}
        return scores[[place[int(i)] for i in indices]]

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
        shard, config = Shard.current(), self.config
        pool, aim = self._examples(train, "train"), self._examples(target, "target")
        valid = pool.valid
        if not len(valid):
            raise ValueError("train: no example has a label token that counts (all are -100)")
        if not len(aim.valid):
            raise ValueError("target: no example has a label token that counts (all are -100)")
        if overlap := len(set(aim.keys) & set(pool.keys)):
            warnings.warn(f"{overlap} target examples are in the pool: they will be chosen (leakage)", stacklevel=2)
        before = self._gradients.passes
        exact = self._wants_exact(len(valid))
        mine: Rows = []
        if not exact:
            mine = (
                self._given_mine(embeddings, pool, shard) if embeddings is not None else self._embed_mine(pool, shard)
            )
        rows, checks = self._landmarks(pool, mine, shard, exact)
        if config.order == 2:
            return self._second_order(pool, aim, rows, mine, shard, exact)
        targets = self._target_rows(aim)
        at_landmarks = self._source_rows(pool, np.concatenate([rows, checks])) @ targets.T
        at_landmarks, at_checks = at_landmarks[: len(rows)], at_landmarks[len(rows) :]
        passes = shard.count(self._gradients.passes - before)
        scores = self._matrix(len(pool), at_landmarks.shape[1], shard)
        if exact:
            scores[torch.from_numpy(rows)] = at_landmarks
            return self._result(pool, scores, rows, FitReport(1.0, 1.0, len(rows), "exact"), None, passes)
        regression = self._fit(assemble(mine, rows, len(pool), shard), at_landmarks)
        for indices, embedded in mine:
            scores[torch.from_numpy(indices)] = regression.predict(embedded)
        scores = shard.total(scores)
        if len(checks):
            report = quality(at_checks, scores[torch.from_numpy(checks)], "held out")
        else:
            report = quality(at_landmarks, regression.leave_one_out, "leave-one-out")
        if config.exact_landmarks:
            scores[torch.from_numpy(rows)] = at_landmarks
            if len(checks):
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
        pool = self._examples(train, "train")
        if not 1 <= k <= len(pool):
            raise ValueError(f"k: expected 1 to {len(pool)} (the pool's size), got {k}")
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

    def _second_order(
        self, pool: Examples, aim: Examples, rows: np.ndarray, mine: Rows, shard: Shard, exact: bool
    ) -> ScoreResult:
        """Influence p and the quadratic term of the whole pool, from those of the landmarks."""
        before, at = self._gradients.passes, torch.from_numpy(rows)
        p, core = landmark_terms(
            SecondOrder(self.model, self.parameters, self.coefficients, self.features, self._gradients, self._loss_fn),
            pool,
            aim,
            rows,
            self.config,
            shard,
            folder=self._store,
            key=self._gradient_key(pool) | {"target": aim.digest} if self._store is not None else None,
            progress=self._progress,
        )
        passes = shard.count(self._gradients.passes - before)
        scores, spread = self._matrix(len(pool), 1, shard), torch.zeros(len(pool), len(rows))
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

    def _wants_exact(self, size: int) -> bool:
        chosen = self.config.landmarks
        if not isinstance(chosen, str):
            return False
        if self.config.num_landmarks > size:
            warnings.warn(
                f"num_landmarks: {self.config.num_landmarks} is more than the {size} examples of the pool; every score "
                "is computed exactly",
                stacklevel=3,
            )
        return self.config.num_landmarks >= size

    def _landmarks(
        self, pool: Examples, mine: Rows, shard: Shard, exact: bool
    ) -> tuple[Int[np.ndarray, " l"], Int[np.ndarray, " c"]]:
        """Return landmarks, and extra examples that check the propagation."""
        config, valid = self.config, pool.valid
        if exact:
            return valid, valid[:0]
        rng = np.random.default_rng(config.seed)
        if not isinstance(config.landmarks, str):
            rows = landmark_choice.given(config.landmarks, valid, len(pool))
        elif config.landmarks == "kmeans++":
            rows = landmark_choice.spread_out(
                assemble(mine, np.arange(len(pool)), len(pool), shard), valid, config.num_landmarks, rng
            )
        else:
            rows = landmark_choice.draw(valid, config.num_landmarks, rng)
        left = np.setdiff1d(valid, rows)
        return rows, landmark_choice.draw(left, min(config.num_check, len(left)), rng)

    def _embed_mine(self, pool: Examples, shard: Shard) -> Rows:
        config = self.config
        embedder = Embedder(self.model, config.embedding, config.seed)
        if config.embedding.pooling == "last" and config.embedding.embed_fn is None:
            pool = self._with_end(pool)

        def rows(piece: np.ndarray) -> Tensor:
            batches = pool.batches(piece, max(config.batch_size, 16))
            return by_index(piece, ((chosen, embedder(batch)) for chosen, batch in batches))

        key = None
        if self._store is not None:
            settings = {"embedding": config.embedding.settings(), "seed": config.seed}
            key = {"model": self._model_digest(), "data": pool.digest, "settings": settings_digest(settings)}
        return filled(
            pieces_of(np.arange(len(pool)), pool.lengths), rows, what="embeddings", shard=shard, folder=self._store,
            key=key, dtype=self._store_dtype, progress=self._progress,
        )  # fmt: skip

    def _given_mine(self, embeddings: Tensor, pool: Examples, shard: Shard) -> Rows:
        if embeddings.dim() != 2 or len(embeddings) != len(pool):
            raise ValueError(
                f"embeddings: expected one row a pool example ({len(pool)}), got shape {tuple(embeddings.shape)}"
            )
        pieces = pieces_of(np.arange(len(pool)), pool.lengths)
        return [(piece, embeddings[torch.from_numpy(piece)]) for i, piece in enumerate(pieces) if shard.owns(i)]

    def _source_rows(self, pool: Examples, rows: np.ndarray) -> Float[Tensor, "l g"]:
        return self._feature_rows(pool, rows, "landmarks", self.features.source)

    def _target_rows(self, aim: Examples) -> Float[Tensor, "m g"]:
        if len(aim.valid) < len(aim):
            _log.warning("target: %d examples without a label token are left out", len(aim) - len(aim.valid))
        return self._feature_rows(aim, aim.valid, "target", self.features.target)

    def _feature_rows(
        self, examples: Examples, rows: np.ndarray, what: str, feature: Any, *, keep: bool = True
    ) -> Float[Tensor, "l g"]:
        shard, folder = Shard.current(), self._store if keep else None

        def compute(piece: np.ndarray) -> Tensor:
            batches = iterate_gradients(self._gradients, examples, piece, self.config.batch_size)
            return by_index(piece, ((chosen, feature(raw)) for chosen, raw in batches))

        key = self._gradient_key(examples) if folder is not None else None
        found = filled(
            pieces_of(rows, examples.lengths), compute, what=what, shard=shard, folder=folder, key=key,
            dtype=self._store_dtype, progress=self._progress,
        )  # fmt: skip
        return assemble(found, rows, len(examples), shard)

    def _matrix(self, n: int, m: int, shard: Shard) -> Float[Tensor, "n m"]:
        """Return zeros, in a file if they are many: a column a target lies together, as the rounds read it."""
        if self._store is None or 4 * n * m <= IN_MEMORY:
            return torch.zeros(n, m)
        self._store.mkdir(parents=True, exist_ok=True)
        path = self._store / f"scores-{shard.rank}.f32"
        return torch.from_numpy(np.memmap(path, np.float32, "w+", shape=(m, n))).T

    def _result(
        self, pool: Examples, scores: Tensor, rows: np.ndarray, report: FitReport, regression: KernelRidge | None,
        passes: int, quadratic: Quadratic | None = None,
    ) -> ScoreResult:  # fmt: skip
        excluded = np.flatnonzero(pool.supervised == 0)
        scores[torch.from_numpy(excluded)] = -torch.inf
        if report.how != "exact" and report.correlation < 0.3:
            _log.warning("propagation is %s", report.verdict)
        _log.info("scored %d examples: %s", len(pool), asdict(report))
        return ScoreResult(scores, rows, report, regression, excluded, passes, self.coefficients.lr, quadratic)

    def _examples(self, dataset: Any, name: str) -> Examples:
        if isinstance(dataset, Examples):
            return dataset
        vocabulary = None
        inner: Any = without_wrappers(self.model)
        if hasattr(inner, "get_input_embeddings"):
            table = inner.get_input_embeddings()
            vocabulary = getattr(table, "num_embeddings", None)
        return Examples(dataset, name, self._causal, vocabulary)

    def _with_end(self, pool: Examples) -> Examples:
        """Return the pool with an end-of-sequence token behind every example."""
        eos = getattr(getattr(without_wrappers(self.model), "config", None), "eos_token_id", None)
        eos = eos[0] if isinstance(eos, (list, tuple)) else eos
        return pool if eos is None else Examples(pool.dataset, pool.name, pool.causal, pool.vocabulary, int(eos))

    def _model_digest(self) -> str:
        if "model" not in self._digests:
            self._digests["model"] = tensors_digest(self.model.named_parameters())
        return self._digests["model"]

    def _gradient_key(self, examples: Examples) -> dict[str, str]:
        config = self.config
        settings = {
            "params": list(self.parameters), "mask_numel": config.mask_numel, "grad_dim": config.grad_dim,
            "projection": config.projection, "seed": config.seed, "order": config.order, "hessian": config.hessian,
            "loss": getattr(self._loss_fn, "__qualname__", type(self._loss_fn).__name__),
        }  # fmt: skip
        a = self.features.a
        if "optimizer" not in self._digests:
            b = self.coefficients.flat("b", self.parameters) if config.order == 2 else torch.zeros(1)
            self._digests["optimizer"] = tensors_digest([("a", torch.ones(1) if a is None else a), ("b", b)])
        return {
            "model": self._model_digest(), "data": examples.digest, "settings": settings_digest(settings),
            "optimizer": self._digests["optimizer"],
        }  # fmt: skip
