"""A training job in the words that methods' predictors ask for: the facts of a workload."""

from __future__ import annotations

import numpy as np

from thrifty._common.ledger import Resource, Workload
from thrifty.advise.account import MEMORY, Account
from thrifty.advise.job import OBJECTIVES, Training
from thrifty.advise.peak import floor


def workload(job: Training, now: Account) -> Workload:
    """Return the same job in the words that methods' predictors ask for, with what its ledger says."""
    model = job.model
    hidden = model.text.hidden_size
    token, pair = layer_bytes(job)
    always = (Resource.WEIGHTS, Resource.OPTIMIZER_STATE)
    early = job.accumulated or "optimizer" in job.offload  # gradients do not pile up in the course of a step
    gradients = 0.0 if early else now.total(Resource.GRADIENTS)
    step = sum(now.total(resource) for resource in MEMORY if resource not in (*always, Resource.GRADIENTS))
    facts: dict[str, float | str] = {
        "parameters": job.parameters,
        "layers": job.depth,
        "layer_parameters": model.layer_parameters,
        "tied": int(bool(getattr(model.config, "tie_word_embeddings", False))),
        "hidden": hidden,
        "vocabulary": model.text.vocab_size,
        "sequence": job.length,
        "batch": job.sequences,
        "bytes_a_number": job.width,
        "feed_forward": getattr(model.text, "intermediate_size", None) or 4 * hidden,
        "kv_share": model.shape.kv_bytes_per_token / (4 * model.layers * hidden),
        "query_share": model.attention_width / hidden,
        "trained": 0 if early else job.trained / job.parameters / job.gpus,
        "step_bytes": step + gradients,
        "gradient_bytes": gradients,
        "floor_bytes": floor(job),
        "layer_token_bytes": token,
        "layer_pair_bytes": pair,
        "fused_head": int(job.fused_head),
        "offloaded_inputs": int("checkpoints" in job.offload),
        "context_parallel": job.context_parallel,
        "devices": job.gpus,
        "optimizer": job.optimizer.name,
        "adapter_rank": job.lora_rank,
    }
    if not job.lora_rank:
        share = job.depth / model.layers
        away = 0.0 if "optimizer" in job.offload else 1.0
        shapes = model.matrices.items()
        facts |= {
            "matrices": sum(model.matrices.values()) * share,
            "matrix_numbers": sum(rows * columns * count for (rows, columns), count in shapes) * share,
            "matrix_sides": sum((rows + columns) * count for (rows, columns), count in shapes) * share,
            "matrix_state": away * job.matrix_state / job.gpus,
            "other_numbers": job.others,
            "other_state": away * job.other_state / job.gpus,
            "rank": job.rank,
        }
    return Workload(OBJECTIVES[job.objective], facts)


def layer_bytes(job: Training) -> tuple[float, float]:
    """Return what a recomputed layer's graph takes while it is differentiated: bytes a token, and a pair of tokens.

    Which tensors are there at the peak depends on the length: the slopes are those at the job's, or, where a layer's
    graph does not yet outweigh the gradients of its weights, at the length from which on it does.
    """
    length = max(64, job.length, round(job.model.layer_parameters / (8 * job.model.text.hidden_size)))
    if job.asked is not None and job.asked[0] != job.length:
        length = 1 << length.bit_length()  # a search asks for few
    lengths = (8 * length // 10, 9 * length // 10, length)
    found = [job.model.phases(1, n, mode="checkpoint", dtype=job.dtype, lora_rank=job.lora_rank).layer for n in lengths]
    _, token, pair = np.linalg.solve(np.vander(np.array(lengths, float), 3, increasing=True), found)
    return max(0.0, float(token)), max(0.0, float(pair))
