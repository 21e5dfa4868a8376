"""CRAIG: the samples that represent the others best, weighted by how many they represent (arXiv 1906.01827)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.sparse import csc_array
from torch import Tensor

from thrifty.data.coreset.gradients import GradientSource
from thrifty.data.coreset.subsets import Subset, by_class, check_k

#: Numbers of a class's similarities that are held at once; a larger class is reduced to nearest neighbours.
HELD = 100_000_000
#: Nearest neighbours of a sample there.
NEIGHBOURS = 128


def facility_location(similarity: NDArray[np.floating] | csc_array, k: int) -> list[int]:
    """Choose k columns greedily so that Σᵢ max_j s_ij over them is large: (1 − 1/e) of the optimum, lazily.

    Args:
        similarity: s_ij ≥ 0 of sample i and candidate j, ``(n, m)``; dense, or sparse by columns.
        k: Columns to choose, at most m.

    Returns:
        The columns, in the order in which they were taken; among equals the lowest.

    Example:
        >>> import numpy as np
        >>> facility_location(np.array([[3.0, 0.0, 1.0], [3.0, 0.0, 1.0], [0.0, 2.0, 1.0]]), 2)
        [0, 1]

    Source:
        Minoux (1978), the accelerated greedy algorithm.
    """
    covered = np.zeros(similarity.shape[0])
    heap = [(-float(gain), j) for j, gain in enumerate(np.asarray(similarity.sum(0)).ravel())]
    heapq.heapify(heap)
    chosen: list[int] = []
    while len(chosen) < k:
        _, j = heapq.heappop(heap)
        column = similarity[:, j] if isinstance(similarity, np.ndarray) else similarity[:, [j]].toarray().ravel()
        gain = float(np.maximum(column - covered, 0).sum())
        if heap and (-gain, j) > heap[0]:  # what it would have gained earlier was an upper bound
            heapq.heappush(heap, (-gain, j))
            continue
        chosen.append(j)
        covered = np.maximum(covered, column)
    return chosen


def square_distances(gradients: GradientSource, columns: Tensor | slice) -> Float[Tensor, "n m"]:
    """Return ‖gᵢ − gⱼ‖² of all gradients and those at some positions."""
    norms = gradients.square_norms()
    if isinstance(columns, slice):
        columns = torch.arange(len(norms), device=norms.device)[columns]
    return (norms[:, None] + norms[columns] - 2 * gradients.gram(columns)).clamp(min=0)


@dataclass(frozen=True)
class Craig:
    """Choose the medoids of the gradients by facility location, in each class; a weight is the size of its cluster.

    Similarities are max ‖g_a − g_b‖² − ‖gᵢ − gⱼ‖². A class whose similarities would not fit keeps those of 128 nearest
    neighbours, and 0 beyond.

    Args:
        per_class: Within each class; else among all.

    Example:
        >>> import torch
        >>> from thrifty.data.coreset import DenseGradients
        >>> rows = DenseGradients(torch.tensor([[0.0], [0.1], [0.2], [9.0]]), torch.zeros(4, dtype=torch.int64))
        >>> subset = Craig().select(rows, 2)
        >>> subset.indices.tolist(), subset.weights.tolist()
        ([2, 3], [3.0, 1.0])

    Source:
        Mirzasoleiman, Bilmes and Leskovec, arXiv 1906.01827.
    """

    per_class: bool = True

    def select(
        self,
        gradients: GradientSource,
        k: int,
        *,
        generator: torch.Generator | None = None,
        validation: GradientSource | None = None,
    ) -> Subset:
        """Return k samples and the sizes of their clusters, which add up to n.

        Args:
            gradients: Of all n samples; with classes if it goes by class.
            k: How many to choose.
            generator: Not needed.
            validation: Not looked at.

        Raises:
            ValueError: ``k`` is out of range, or there are no classes.
        """
        check_k(k, len(gradients))
        groups = by_class(gradients.labels, k) if self.per_class else [(0, torch.arange(len(gradients)), k)]
        indices, weights = [], []
        for _, positions, quota in groups:
            medoids, sizes = _medoids(gradients.take(positions.to(gradients.square_norms().device)), quota)
            indices.append(positions[medoids])
            weights.append(sizes)
        return Subset(torch.cat(indices), torch.cat(weights))


def _medoids(gradients: GradientSource, k: int) -> tuple[Tensor, Tensor]:
    """Return the positions of k medoids and the sizes of their clusters, on the CPU."""
    n = len(gradients)
    similarity: NDArray[np.floating] | csc_array
    if n * n <= HELD:
        distances = square_distances(gradients, slice(0, n))
        similarity = (distances.max() - distances).double().cpu().numpy()
    else:
        similarity = _of_neighbours(gradients)
    chosen = torch.tensor(facility_location(similarity, k))
    at = chosen.to(gradients.square_norms().device)
    nearest = square_distances(gradients, at).argmin(1).cpu()
    return chosen, nearest.bincount(minlength=k).float()


def _of_neighbours(gradients: GradientSource) -> csc_array:
    """Return similarities to each sample's nearest neighbours, made block by block."""
    n = len(gradients)
    width = max(1, HELD // n)
    blocks = []
    for first in range(0, n, width):
        nearest = square_distances(gradients, slice(first, first + width)).topk(NEIGHBOURS, 0, largest=False)
        blocks.append((nearest.values.double().cpu().numpy(), nearest.indices.cpu().numpy()))
    near, rows = (np.concatenate([block[at] for block in blocks], 1) for at in (0, 1))
    ends = np.arange(n + 1) * NEIGHBOURS
    return csc_array(((near.max() - near).T.ravel(), rows.T.ravel(), ends), shape=(n, n))
