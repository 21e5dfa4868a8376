"""Rows of a data set under one model: embeddings and gradient features, each process its share, kept in a store.

A store is keyed by digests of model, data, settings and optimizer. Rows of landmarks, and what depends on the target,
lie in folders of their own, so that one store of a pool serves other targets and other numbers of landmarks, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty.data.influence.coefficients import StepCoefficients
from thrifty.data.influence.config import InfluenceConfig
from thrifty.data.influence.embeddings import Embedder
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.features import GradientFeatures
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.identity import function_digest, model_digest
from thrifty.data.influence.losses import LossFn
from thrifty.data.influence.parameters import without_wrappers
from thrifty.data.influence.sharding import Rows, Shard, assemble, by_index
from thrifty.data.influence.stores import Progress, digest_of, filled, pieces_of, settings_digest, tensors_digest

_log = logging.getLogger(__name__)

#: Score matrices larger than this are kept in a file, where there is a store.
IN_MEMORY = 256 * 2**20


@dataclass
class ModelRows:
    """Computes rows of examples under a model as it is now.

    Args:
        model: The model.
        parameters: Name to parameter, those that influence is measured on.
        coefficients: The optimizer's next step.
        features: Mask, scale and projection of gradients.
        gradients: Gives gradient rows.
        loss_fn: One loss an example.
        config: Settings.
        shard: This process.
        store: Folder in which rows are kept; ``None`` keeps nothing.
        dtype: Of the rows in it.
        progress: Told (done, total, what).
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    coefficients: StepCoefficients
    features: GradientFeatures
    gradients: ExampleGradients
    loss_fn: LossFn
    config: InfluenceConfig
    shard: Shard
    store: Path | None = None
    dtype: torch.dtype = torch.float32
    progress: Progress | None = None

    def embeddings(self, pool: Examples) -> Rows:
        """Embed this process's share of a pool."""
        config = self.config
        embedder = Embedder(self.model, config.embedding, config.seed)
        if config.embedding.pooling == "last" and config.embedding.embed_fn is None:
            pool = self._with_end(pool)

        def rows(piece: np.ndarray) -> Tensor:
            batches = pool.batches(piece, max(config.batch_size, 16))
            return by_index(piece, ((chosen, embedder(batch)) for chosen, batch in batches))

        key = None
        if self.store is not None:
            settings: dict[str, Any] = {"embedding": config.embedding.settings(), "seed": config.seed}
            if config.embedding.embed_fn is not None:
                settings["embed_fn"] = function_digest(config.embedding.embed_fn, "embed_fn")
            key = {"model": self._model_digest, "data": pool.digest, "settings": settings_digest(settings)}
        return _finite(
            self._filled(pieces_of(np.arange(len(pool)), pool.lengths), rows, "embeddings", "embeddings", key), pool
        )

    def given(self, embeddings: Tensor, pool: Examples) -> Rows:
        """Take this process's share of embeddings that there are already."""
        if embeddings.dim() != 2 or len(embeddings) != len(pool):
            raise ValueError(
                f"embeddings: expected one row a pool example ({len(pool)}), got shape {tuple(embeddings.shape)}"
            )
        pieces = pieces_of(np.arange(len(pool)), pool.lengths)
        mine = [(piece, embeddings[torch.from_numpy(piece)]) for i, piece in enumerate(pieces) if self.shard.owns(i)]
        return _finite(mine, pool)

    def source(self, pool: Examples, rows: np.ndarray, *, keep: bool = True) -> Float[Tensor, "l g"]:
        """Return gradient features of pool examples, from all processes."""
        return self._features(pool, rows, _of("landmarks", digest_of(rows)), "landmarks", self.features.source, keep)

    def target(self, aim: Examples, *, keep: bool = True) -> Float[Tensor, "m g"]:
        """Return gradient features of the target examples that carry a loss, from all processes."""
        if len(aim.valid) < len(aim):
            _log.warning("target: %d examples without a label token are left out", len(aim) - len(aim.valid))
        return self._features(aim, aim.valid, _of("target", aim.digest), "target", self.features.target, keep)

    def curved(
        self, pool: Examples, rows: np.ndarray, aim: Examples, compute: Callable[[np.ndarray], Tensor]
    ) -> Float[Tensor, "l g"]:
        """Return rows of pool examples that ``compute`` gives from the target's curvature, from all processes."""
        key = None if self.store is None else self._gradient_key(pool) | {"target": aim.digest}
        what = _of("second-order", aim.digest + digest_of(rows))
        found = self._filled(pieces_of(rows, pool.lengths), compute, what, "second-order", key)
        return assemble(found, rows, len(pool), self.shard)

    def matrix(self, n: int, m: int, aim: Examples) -> Float[Tensor, "n m"]:
        """Return zeros, in a file if they are many: a column a target lies together, as the rounds read it."""
        if self.store is None or 4 * n * m <= IN_MEMORY:
            return torch.zeros(n, m)
        self.store.mkdir(parents=True, exist_ok=True)
        path = self.store / f"{_of('scores', aim.digest)}-{self.shard.rank}.f32"
        path.unlink(missing_ok=True)  # an earlier result goes on with the file that it has open
        return torch.from_numpy(np.memmap(path, np.float32, "w+", shape=(m, n))).T

    def _features(
        self, examples: Examples, rows: np.ndarray, name: str, what: str, feature: Callable[[Tensor], Tensor],
        keep: bool,
    ) -> Float[Tensor, "l g"]:  # fmt: skip
        def compute(piece: np.ndarray) -> Tensor:
            batches = iterate_gradients(self.gradients, examples, piece, self.config.batch_size)
            return by_index(piece, ((chosen, feature(raw)) for chosen, raw in batches))

        key = self._gradient_key(examples) if keep and self.store is not None else None
        found = self._filled(pieces_of(rows, examples.lengths), compute, name, what, key)
        return assemble(found, rows, len(examples), self.shard)

    def _filled(
        self, pieces: list[np.ndarray], compute: Callable[[np.ndarray], Tensor], name: str, what: str,
        key: dict[str, str] | None,
    ) -> Rows:  # fmt: skip
        folder = None if self.store is None or key is None else self.store / name
        return filled(
            pieces, compute, what=what, shard=self.shard, folder=folder, key=key, dtype=self.dtype,
            progress=self.progress,
        )  # fmt: skip

    def _with_end(self, pool: Examples) -> Examples:
        """Return the pool with an end-of-sequence token behind every example."""
        eos = getattr(getattr(without_wrappers(self.model), "config", None), "eos_token_id", None)
        eos = eos[0] if isinstance(eos, (list, tuple)) else eos
        return pool if eos is None else Examples(pool.dataset, pool.name, pool.causal, pool.vocabulary, int(eos))

    @cached_property
    def _model_digest(self) -> str:
        return model_digest(self.model)

    @cached_property
    def _optimizer_digest(self) -> str:
        a, order = self.features.a, self.config.order
        b = self.coefficients.flat("b", self.parameters) if order == 2 else torch.zeros(1)
        return tensors_digest([("a", torch.ones(1) if a is None else a), ("b", b)])

    def _gradient_key(self, examples: Examples) -> dict[str, str]:
        config = self.config
        settings = {
            "params": list(self.parameters), "mask_numel": config.mask_numel, "grad_dim": config.grad_dim,
            "projection": config.projection, "seed": config.seed, "order": config.order, "hessian": config.hessian,
            "loss": function_digest(self.loss_fn, "loss_fn"),
        }  # fmt: skip
        return {
            "model": self._model_digest, "data": examples.digest, "settings": settings_digest(settings),
            "optimizer": self._optimizer_digest,
        }  # fmt: skip


def _finite(mine: Rows, pool: Examples) -> Rows:
    for indices, values in mine:
        broken = ~torch.isfinite(values).all(1).numpy() & (pool.supervised[indices] > 0)
        if broken.any():
            raise ValueError(
                f"{pool.name}: the embedding of the example at index {int(indices[broken][0])} is not finite (NaN or "
                "inf); leave it out, or compute in float32"
            )
    return mine


def _of(what: str, digest: str) -> str:
    """Return the name of rows of some examples, or for some target."""
    return f"{what}-{digest_of(digest)[:12]}"
