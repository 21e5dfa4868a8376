"""A training job in the words that methods' predictors ask for: the facts of a workload."""

from __future__ import annotations

import numpy as np

from thrifty._common.ledger import Resource, Workload
from thrifty.advise.account import Account
from thrifty.advise.training import OBJECTIVES, Training


def workload(job: Training, now: Account) -> Workload:
    """Return the same job in the words that methods' predictors ask for, with what its ledger says."""
    gradients = now.total(Resource.GRADIENTS)
    model = job.model
    numbers = sum(rows * columns * count for (rows, columns), count in model.matrices.items())
    sides = sum((rows + columns) * count for (rows, columns), count in model.matrices.items())
    larger = sum(max(shape) * count for shape, count in model.matrices.items())
    share = job.depth / model.layers
    hidden = model.text.hidden_size
    token, pair = layer_bytes(job)
    facts: dict[str, float | str] = {
        "parameters": job.parameters,
        "layers": job.depth,
        "layer_parameters": model.layer_parameters,
        "tied": int(bool(getattr(model.config, "tie_word_embeddings", False))),
        "hidden": hidden,
        "vocabulary": model.text.vocab_size,
        "sequence": job.length,
        "tokens": job.length,
        "batch": job.sequences,
        "bytes_a_number": job.width,
        "feed_forward": getattr(model.text, "intermediate_size", None) or 4 * hidden,
        "kv_share": model.shape.kv_bytes_per_token / (4 * model.layers * hidden),
        "query_share": model.attention_width / hidden,
        "trained": 0 if job.accumulated else job.trained / job.parameters,
        "step_bytes": now.total(Resource.ACTIVATIONS) + (0 if job.accumulated else gradients),
        "gradient_bytes": 0 if job.accumulated else gradients,
        "layer_token_bytes": token,
        "layer_pair_bytes": pair,
        "optimizer": job.optimizer.name,
        "adapter_rank": job.lora_rank,
    }
    if not job.lora_rank:
        held = sum(
            job.optimizer.numbers(rows, columns, job.rank) * count for (rows, columns), count in model.matrices.items()
        )
        facts |= {
            "matrices": sum(model.matrices.values()) * share,
            "matrix_numbers": numbers * share,
            "matrix_sides": sides * share,
            "matrix_larger_sides": larger * share,
            "matrix_state": held * share * (job.optimizer.bytes or job.width) / job.gpus,
            "rank": job.rank,
        }
    return Workload(OBJECTIVES[job.objective], facts)


def layer_bytes(job: Training) -> tuple[float, float]:
    """Return what a recomputed layer's graph takes while it is differentiated: bytes a token, and a pair of tokens."""
    lengths = (256, 512, 1024)
    found = [job.model.phases(1, n, mode="checkpoint", dtype=job.dtype, lora_rank=job.lora_rank).layer for n in lengths]
    _, token, pair = np.linalg.solve(np.vander(np.array(lengths, float), 3, increasing=True), found)
    return max(0.0, float(token)), max(0.0, float(pair))
