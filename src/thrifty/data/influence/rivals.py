"""What one would pick instead without gradients, in the same terms: random, length-matched, RDS+, mid-perplexity.

Each takes a pool and gives a :class:`SelectionResult`. Clean-room versions from the papers: RDS+ (Ivison et al.,
"Large-Scale Data Selection for Instruction Tuning", arXiv 2503.01807) and perplexity filtering (Marion et al., "When
Less is More", arXiv 2309.04564), the middle of the distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty.data.influence.embeddings import position_weights
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.features import unit
from thrifty.data.influence.losses import LossFn, call_model, default_loss, is_causal, to_device
from thrifty.data.influence.parameters import backbone, vocabulary_size
from thrifty.data.influence.picking import round_robin
from thrifty.data.influence.replica import view
from thrifty.data.influence.results import SelectionResult


def random_selection(train: Any, k: int, *, seed: int = 0) -> SelectionResult:
    """Choose ``k`` examples at random.

    Args:
        train: The pool: anything that has a length.
        k: How many.
        seed: Of the draw.

    Returns:
        The chosen examples, all of weight 1.

    Raises:
        ValueError: The pool has fewer than ``k`` examples.

    Example:
        >>> len(random_selection(range(10), 3).indices)
        3
    """
    check_k(k, len(train))
    return plain_result(np.random.default_rng(seed).permutation(len(train))[:k], np.zeros(len(train)), "random")


def length_matched_selection(train: Any, lengths: Sequence[int], k: int, *, seed: int = 0) -> SelectionResult:
    """Choose ``k`` random examples whose lengths follow ``lengths``, those of another selection.

    A control: gradients of long examples are small, so that raw scores would choose by length alone.

    Args:
        train: The pool, tokenised.
        lengths: Tokens of the examples to match, in any number.
        k: How many.
        seed: Of the draw.

    Returns:
        The chosen examples, all of weight 1.

    Raises:
        ValueError: The pool has fewer than ``k`` examples.

    Example:
        >>> pool = [{"input_ids": [1] * length} for length in (2, 9, 3, 8)]
        >>> sorted(length_matched_selection(pool, [8, 9], 2).indices.tolist())
        [1, 3]
    """
    pool = as_examples(train, None)
    check_k(k, len(pool))
    rng = np.random.default_rng(seed)
    wanted = np.quantile(np.asarray(lengths), (np.arange(k) + 0.5) / k)
    left = rng.permutation(len(pool))
    chosen = []
    for length in rng.permutation(wanted):
        nearest = int(np.argmin(np.abs(pool.lengths[left] - length)))
        chosen.append(int(left[nearest]))
        left = np.delete(left, nearest)
    return plain_result(np.array(chosen), np.zeros(len(pool)), "length-matched random")


def rds_embeddings(model: nn.Module, dataset: Any, *, batch_size: int = 16) -> Float[Tensor, "n hidden"]:
    """Embed examples as RDS+ does: the last hidden states' mean with weights 1, 2, ..., length, of unit length.

    Args:
        model: The base model.
        dataset: Examples, tokenised.
        batch_size: Examples a pass.

    Returns:
        A row an example, on the CPU.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> rds_embeddings(model, pool).shape
        torch.Size([20, 16])

    Source:
        arXiv 2503.01807.
    """
    examples = as_examples(dataset, model)
    network = view(backbone(model), eager=False)
    device = next(model.parameters()).device
    out: Tensor | None = None
    with torch.no_grad():
        for chosen, batch in examples.batches(np.arange(len(examples)), batch_size):
            inputs = to_device({name: value for name, value in batch.items() if name != "labels"}, device)
            hidden = call_model(network, inputs).last_hidden_state.float()
            weights = position_weights(inputs, "weighted_mean")
            pooled = hidden.flatten(1, -2).mean(1) if weights is None else torch.einsum("bth,bt->bh", hidden, weights)
            out = torch.zeros(len(examples), pooled.shape[1]) if out is None else out
            out[torch.from_numpy(chosen)] = unit(pooled).cpu()
    assert out is not None
    return out


def rds_plus_selection(model: nn.Module, train: Any, target: Any, k: int, *, batch_size: int = 16) -> SelectionResult:
    """Choose ``k`` examples whose hidden states are nearest to the targets', which take turns in their own order.

    Args:
        model: The base model.
        train: The pool, tokenised.
        target: The target examples, tokenised.
        k: How many.
        batch_size: Examples a pass.

    Returns:
        The chosen examples in the order in which they were taken, all of weight 1.

    Raises:
        ValueError: The pool has fewer than ``k`` examples.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> int(rds_plus_selection(model, pool, pool[3:4], 2).indices[0])  # nothing is nearer than itself
        3

    Source:
        arXiv 2503.01807.
    """
    check_k(k, len(train))
    scores = (
        rds_embeddings(model, train, batch_size=batch_size) @ rds_embeddings(model, target, batch_size=batch_size).T
    )
    return plain_result(round_robin(scores, k, seed=None), scores.mean(1).numpy(), "RDS+")


def mid_perplexity_selection(
    model: nn.Module, train: Any, k: int, *, loss_fn: LossFn | None = None, batch_size: int = 16
) -> SelectionResult:
    """Choose the ``k`` examples around the median perplexity under the model.

    Args:
        model: The base model.
        train: The pool, tokenised.
        k: How many.
        loss_fn: One loss an example.
        batch_size: Examples a pass.

    Returns:
        The chosen examples by rising perplexity, all of weight 1.

    Raises:
        ValueError: The pool has fewer than ``k`` examples with a label.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
        ...                                      num_hidden_layers=2, num_attention_heads=2))
        >>> pool = [{"input_ids": [i % 7 + 1, 2 * i % 60, 5, 9]} for i in range(20)]
        >>> len(mid_perplexity_selection(model, pool, 5).indices)
        5

    Source:
        arXiv 2309.04564.
    """
    pool = as_examples(train, model)
    check_k(k, len(pool.valid))
    losses = example_losses(model, pool, loss_fn=loss_fn, batch_size=batch_size)[pool.valid]
    order = pool.valid[np.argsort(losses, kind="stable")]
    start = (len(order) - k) // 2
    scores = np.full(len(pool), -np.inf)
    scores[pool.valid] = np.exp(losses)
    return plain_result(order[start : start + k], scores, "mid-perplexity")


def example_losses(
    model: nn.Module, dataset: Any, *, loss_fn: LossFn | None = None, batch_size: int = 16
) -> NDArray[np.float64]:
    """Return the loss of each example: the mean over its own label tokens (0 where it has none)."""
    examples, loss_fn = as_examples(dataset, model), loss_fn or default_loss(model)
    network, device = view(model, eager=False), next(model.parameters()).device
    out = np.zeros(len(examples))
    with torch.no_grad():
        for chosen, batch in examples.batches(np.arange(len(examples)), batch_size):
            inputs = to_device(batch, device)
            out[chosen] = loss_fn(call_model(network, inputs), inputs).double().cpu().numpy()
    return out


def as_examples(dataset: Any, model: nn.Module | None, name: str = "train") -> Examples:
    """Return a data set as examples for a model."""
    if isinstance(dataset, Examples):
        return dataset
    return Examples(dataset, name, model is None or is_causal(model), None if model is None else vocabulary_size(model))


def plain_result(indices: NDArray[Any], scores: NDArray[Any], method: str) -> SelectionResult:
    """Return a choice without weights."""
    return SelectionResult(
        np.asarray(indices, dtype=np.int64), np.ones(len(indices), dtype=np.float32),
        scores[indices].astype(np.float32), method, {},
    )  # fmt: skip


def check_k(k: int, size: int) -> None:
    """Refuse a number of examples that the pool does not have."""
    if not 1 <= k <= size:
        raise ValueError(f"k: expected 1 to {size}, got {k}")
