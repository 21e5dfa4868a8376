"""Scoring more than fits a process: a scorer that is saved once, and applied by Ray Data to every part of a corpus.

After landmarks have been measured, the score of any further example needs its embedding alone (a few blocks forwards).
A scorer is what the landmarks taught: their embeddings, the dual coefficients, and how to embed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor, nn

from thrifty._common import settings
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty._common.weights import load_tensors
from thrifty.data.influence.config import InfluenceConfig
from thrifty.data.influence.embeddings import Embedder
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.identity import model_digest
from thrifty.data.influence.losses import is_causal
from thrifty.data.influence.regression import KernelRidge
from thrifty.data.influence.results import ScoreResult
from thrifty.data.influence.sharding import by_index
from thrifty.data.influence.stores import StaleStoreError

SCHEMA, VERSION = "thrifty.influence.scorer", 1


class CorpusScorer:
    """Predicts the scores of any examples from their embeddings.

    Args:
        model: The model that the landmarks were embedded with.
        config: The settings of that run.
        regression: ``ScoreResult.regression``.

    Raises:
        ValueError: All scores of that run were exact, so that there is nothing to propagate.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> from thrifty.data.influence import InfluenceDistillation, JVPEmbedding
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(40)]
        >>> picker = InfluenceDistillation(model, num_landmarks=16, embedding=JVPEmbedding(num_blocks=1))
        >>> scorer = CorpusScorer(model, picker.config, picker.score(pool, pool[:2]).regression)
        >>> scorer(pool[:5]).shape
        torch.Size([5, 2])

    Source:
        arXiv 2505.19051, kernel ridge regression over landmarks: P̂ = K K_ΛΛ⁻¹ P_Λ, for rows that were not in the pool.
    """

    def __init__(self, model: nn.Module, config: InfluenceConfig, regression: KernelRidge | None) -> None:
        if regression is None:
            raise ValueError("regression: every score of that run was exact; use fewer landmarks than examples")
        self.config = config
        self.regression = regression
        self._embedder = Embedder(model, config.embedding, config.seed)
        self._causal = is_causal(model)
        self._digest = model_digest(model)

    @classmethod
    def from_result(cls, model: nn.Module, config: InfluenceConfig, scored: ScoreResult) -> CorpusScorer:
        """Take the regression of a finished run."""
        return cls(model, config, scored.regression)

    def __call__(self, dataset: Any, *, batch_size: int = 32) -> Float[Tensor, "n m"]:
        """Return one row an example, one column a target."""
        examples = dataset if isinstance(dataset, Examples) else Examples(dataset, "corpus", self._causal)
        rows = np.arange(len(examples))
        batches = examples.batches(rows, batch_size)
        return self.regression.predict(by_index(rows, ((chosen, self._embedder(batch)) for chosen, batch in batches)))

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write it into a folder (the model is not part of it).

        Raises:
            FileExistsError: There is one already, and ``force`` is False.
        """
        folder, fit = Path(folder), self.regression
        numbers = {"landmarks": fit.landmarks, "centre": fit.centre, "dual": fit.dual, "left_out": fit.leave_one_out}
        write_whole(
            folder / "scorer.safetensors",
            save({name: value.contiguous() for name, value in numbers.items()}),
            force=force,
        )
        about = {
            "model": self._digest,
            "kernel": fit.kernel,
            "bandwidth": fit.bandwidth,
            "damp": fit.damp,
            "config": json.loads(self.config.to_json()),
        }
        write_whole(folder / "scorer.json", settings.dump(about, SCHEMA, VERSION), force=force)
        return folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: nn.Module) -> CorpusScorer:
        """Read it back, for the same model.

        Raises:
            StaleStoreError: It was made with another model.
            ValueError: It is of another schema.
        """
        path = Path(folder) / "scorer.json"
        about = settings.parse(path.read_text(), SCHEMA, VERSION, known=None, name=str(path))
        numbers = load_tensors(path.with_suffix(".safetensors"), name="folder", extra="llm")
        regression = KernelRidge(
            numbers["landmarks"], numbers["centre"], numbers["dual"], about["kernel"], about["bandwidth"],
            about["damp"], numbers["left_out"],
        )  # fmt: skip
        made = cls(model, InfluenceConfig.from_json(json.dumps(about["config"])), regression)
        if made._digest != about["model"]:
            raise StaleStoreError(f"folder: the scorer in {folder} was made with another model than this one")
        return made


def score_corpus(
    corpus: Any,
    load_model: Callable[[], nn.Module],
    scorer: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    workers: int = 1,
    column: str = "influence",
    **options: Any,
) -> Any:
    """Add scores to a Ray data set, lazily, a block at a time.

    Args:
        corpus: A ``ray.data.Dataset`` with a column ``input_ids``.
        load_model: Loads the model, once in each worker.
        scorer: Folder that :meth:`CorpusScorer.save` wrote, where every worker can read it.
        batch_size: Rows a batch.
        workers: Actors.
        column: Name of the new column; a row holds one score a target.
        options: More of ``map_batches``, for instance ``num_gpus=1``.

    Returns:
        The data set with the column; nothing is computed until it is read.

    Raises:
        ImportError: Ray is not installed.

    Example:
        >>> import ray  # doctest: +SKIP
        >>> corpus = ray.data.read_parquet("corpus/")  # doctest: +SKIP
        >>> score_corpus(corpus, load_model, "scorer").write_parquet("scored/")  # doctest: +SKIP
    """
    require("ray.data", extra="ray")
    return corpus.map_batches(
        _Worker,
        fn_constructor_args=(load_model, str(scorer), column),
        batch_format="pyarrow",
        batch_size=batch_size,
        concurrency=workers,
        **options,
    )


class _Worker:
    """One actor: a model and a scorer."""

    def __init__(self, load_model: Callable[[], nn.Module], scorer: str, column: str) -> None:
        self._score = CorpusScorer.load(scorer, load_model())
        self._column = column

    def __call__(self, table: Any) -> Any:
        scores = self._score(table.select([name for name in table.column_names if name in _FIELDS]).to_pylist())
        return table.append_column(self._column, [scores.tolist()])


_FIELDS = frozenset({"input_ids", "attention_mask", "token_type_ids", "labels"})
