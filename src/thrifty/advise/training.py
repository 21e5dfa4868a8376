"""The ledger of a training step: bytes at the peak by part, FLOPs, traffic, and seconds at best.

FLOPs are two a weight and token, three times that with the backward pass, four with recomputation (Kaplan et al., arXiv
2001.08361, section 2.1), and 4 · length · width a token and layer for attention, half of it where kernels skip what is
masked. Bytes are those of :mod:`thrifty.advise.peak`.
"""

from __future__ import annotations

from thrifty._common.ledger import Resource
from thrifty.advise.account import Account, Part
from thrifty.advise.job import Training
from thrifty.advise.peak import allocated, fullest, held
from thrifty.advise.rehearsal import LAYERS


def account(job: Training) -> Account:
    """Return the ledger of a training step."""
    memory, moment = fullest(job)
    parts = [*held(job), *memory, *_flops(job), *_transfer(job)]
    rate = job.device.flops["float32" if job.dtype == "float32" else "bfloat16"]
    phases = allocated(job)
    written = phases.written + (job.depth - min(LAYERS, job.model.layers)) * phases.written_layer
    weights = (job.parameters + job.adapters) * job.width
    traffic = (
        3 * (written + weights) + (2 * (job.matrix_state + job.other_state) + 3 * job.trained * job.width) / job.gpus
    )
    seconds = {
        "arithmetic": sum(part.amount for part in parts if part.resource is Resource.FLOPS) / rate,
        "memory traffic": traffic / job.device.bandwidth,
    }
    if job.generated:  # every new token reads the weights, and keys and values of those before it
        read = weights + job.a_token * (job.length - job.generated / 2)
        seconds["generation's memory traffic"] = job.generated * read / job.device.bandwidth
    for name, rate_of in (("communication", job.device.link), ("host traffic", job.device.host_link)):
        amount = sum(part.amount for part in parts if part.name == name)
        if amount:
            seconds[name] = amount / rate_of
    return Account(tuple(parts), seconds, job.device.memory, rate, moment)


def _flops(job: Training) -> list[Part]:
    tokens = job.sequences * job.tokens
    head = job.model.text.vocab_size * job.model.text.hidden_size
    layers = (job.model.active - head) * job.depth / job.model.layers  # the embedding is looked up, not multiplied
    forward = 2.0 * (layers + head) * tokens
    attention = 2.0 * job.depth * tokens * job.length * job.model.attention_width
    backward = (1.0 if job.lora_rank else 2.0) * forward + 2.5 * attention
    parts = [
        Part("forward pass", Resource.FLOPS, forward, "2 · active weights · tokens"),
        Part("attention", Resource.FLOPS, attention, "2 · layers · tokens · length · width, causal"),
        Part(
            "backward pass", Resource.FLOPS, backward, "twice the forward pass (once for frozen weights), 2.5 attention"
        ),
    ]
    again = forward + attention
    if job.checkpointing:
        layers_again = again - (0.0 if job.fused_head else 2.0 * head * tokens)
        parts.append(Part("recomputation", Resource.FLOPS, layers_again, "the layers' forward pass again"))
    if job.objective == "dpo":
        parts.append(Part("reference model", Resource.FLOPS, again, "its forward pass"))
    if job.generated:
        parts.append(Part("generation", Resource.FLOPS, again, "a forward pass of every token, prompts included"))
    return parts


def _transfer(job: Training) -> list[Part]:
    """Return bytes that a device receives: from the others, and from or to the host."""
    others, shared = 1 - 1 / job.gpus, 1 - 1 / job.context_parallel
    between = (2 * job.parameters + job.trained) * job.width * others + 3 * job.a_token * job.length * shared
    said = "(2 · weights gathered + gradients scattered) · (gpus − 1)/gpus"
    if job.context_parallel > 1:
        said += " + 3 · keys and values of the other slices"
    host = 0.0
    if "checkpoints" in job.offload:
        host += 2 * job.depth * allocated(job).kept
    if "optimizer" in job.offload:
        host += 2 * job.trained * job.width / job.gpus
    if "weights" in job.offload:
        host += 2 * job.parameters * job.width / job.gpus
    return [
        part
        for part in (
            Part("communication", Resource.TRANSFER, between, said),
            Part("host traffic", Resource.TRANSFER, host, "what is offloaded, there and back"),
        )
        if part.amount
    ]
