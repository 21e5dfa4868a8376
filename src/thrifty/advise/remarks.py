"""What a training ledger rests on that a user may not expect, in words."""

from __future__ import annotations

from thrifty.advise.job import Training


def remarks(job: Training) -> tuple[str, ...]:
    """Return what to know of the ledger of a job before its numbers are used.

    Example:
        >>> from transformers import LlamaConfig
        >>> from thrifty.advise import training_job
        >>> tiny = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        ...     num_attention_heads=4, max_position_embeddings=128)
        >>> remarks(training_job(tiny, length=256, optimizer="sgd"))
        ('the model is configured for 128 tokens; longer sequences need its positions scaled',)
    """
    said = []
    most = getattr(job.model.text, "max_position_embeddings", None)
    if most and not job.model.positions and job.length > most:
        said.append(f"the model is configured for {most} tokens; longer sequences need its positions scaled")
    if job.optimizer.name == "adamw" and not job.lora_rank and job.width == 2:
        said.append(
            f"weights and moments are all in {job.dtype}, {4 * job.width} bytes a weight with the gradient; mixed "
            "precision keeps them in 32 bits besides: --optimizer adamw-mixed"
        )
    if job.optimizer.name.startswith("adamw") and job.largest < job.trained:
        more = 2 * (job.trained - job.largest) * job.width / job.gpus / 2**30
        if more >= 0.1:
            said.append(
                "the optimizer steps one weight at a time (foreach=False or fused=True); all at once, as torch does "
                f"on a GPU unless told, its temporaries would take up to {more:.1f} GiB more"
            )
    return tuple(said)
