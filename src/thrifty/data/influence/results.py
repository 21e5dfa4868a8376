"""What scoring and selecting give, and their files: safetensors for numbers, JSON for the rest."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import save
from torch import Tensor

from thrifty._common import settings
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.weights import load_tensors
from thrifty.data.influence.regression import FitReport, KernelRidge
from thrifty.data.influence.weights import Quadratic

SCHEMA, VERSION = "thrifty.influence.selection", 1


@dataclass(frozen=True)
class ScoreResult:
    """Scores of a pool against targets.

    Args:
        scores: One row a pool example, one column a target; −inf where an example has no loss. At second order there is
            one column: the influence p.
        landmark_indices: Examples whose score comes from their own gradient.
        report: How far the propagation can be trusted.
        regression: What predicts the scores of further examples from their embeddings; ``None`` if all are exact.
        excluded: Pool examples without a label token.
        backward_passes: Examples that were run backwards, in all processes; each process runs one of them twice, to
            check batched gradients against plain autograd.
        lr: The optimizer's learning rate.
        quadratic: ηQ, at second order.

    Example:
        >>> scored = ScoreResult(torch.tensor([[0.1], [0.9]]), np.arange(2), FitReport(1.0, 1.0, 2, "exact"))
        >>> from thrifty.data.influence import choose
        >>> choose(scored, 1).indices
        array([1])

    Source:
        arXiv 2505.19051: P, the influence of each example on each target.
    """

    scores: Float[Tensor, "n m"]
    landmark_indices: Int[np.ndarray, " l"]
    report: FitReport
    regression: KernelRidge | None = None
    excluded: Int[np.ndarray, " e"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    backward_passes: int = 0
    lr: float = 1.0
    quadratic: Quadratic | None = None


@dataclass(frozen=True)
class SelectionResult:
    """The chosen examples.

    Args:
        indices: Into the pool, in the order in which they were chosen: ``dataset.select(result.indices)``.
        weights: One a chosen example, 1 on average: multiply losses by them, or leave them alone.
        scores: The score of each chosen example (its mean over the targets).
        method: Who chose.
        report: What a reader should know: the quality of propagation, what was excluded, λ, ties, costs.

    Example:
        >>> result = SelectionResult(np.array([4, 2]), np.array([1.5, 0.5]), np.array([0.9, 0.3]))
        >>> [["a", "b", "c", "d", "e"][i] for i in result.indices]
        ['e', 'c']
    """

    indices: Int[np.ndarray, " k"]
    weights: Float[np.ndarray, " k"]
    scores: Float[np.ndarray, " k"]
    method: str = "influence"
    report: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write it into a folder.

        Raises:
            FileExistsError: There is a result already, and ``force`` is False.
        """
        folder = Path(folder)
        refuse_existing(folder / "selection.json", force)
        numbers = {
            "indices": torch.from_numpy(np.ascontiguousarray(self.indices, dtype=np.int64)),
            "weights": torch.from_numpy(np.ascontiguousarray(self.weights, dtype=np.float32)),
            "scores": torch.from_numpy(np.ascontiguousarray(self.scores, dtype=np.float32)),
        }
        write_whole(folder / "selection.safetensors", save(numbers), force=force)
        text = settings.dump({"method": self.method, "report": self.report}, SCHEMA, VERSION)
        write_whole(folder / "selection.json", text, force=force)
        return folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> SelectionResult:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: It is of another schema, or the numbers do not fit together.
            OSError: There is none.

        Example:
            >>> import tempfile
            >>> result = SelectionResult(np.array([4, 2]), np.array([1.5, 0.5]), np.array([0.9, 0.3]))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     SelectionResult.load(result.save(folder)).indices
            array([4, 2])
        """
        path = Path(folder) / "selection.json"
        keys = ("method", "report")
        found = settings.parse(path.read_text(), SCHEMA, VERSION, known=keys, needed=keys, name=str(path))
        numbers = load_tensors(path.with_suffix(".safetensors"), name="folder", extra="llm")
        if len({len(value) for value in numbers.values()}) != 1 or set(numbers) != {"indices", "weights", "scores"}:
            raise ValueError(f"folder: the numbers in {folder} do not fit together")
        indices, weights, scores = (numbers[name].numpy() for name in ("indices", "weights", "scores"))
        return cls(indices, weights, scores, **found)
