"""Whether the gradients are those of plain autograd: families in float64, and what is communicated."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.streambp import enable_streambp
from thrifty.training.streambp.evidence.contenders import OURS, gradient_error

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9, "head_dim": 8}
#: Those whose norms compute in the model's precision, and those whose norms, router or softmax use float32.
DOUBLE: dict[str, dict[str, Any]] = {
    "Starcoder2": {"sliding_window": 5}, "Phi": {}, "StableLm": {"use_parallel_residual": True}, "GPTNeoX": {},
}  # fmt: skip
SINGLE: dict[str, dict[str, Any]] = {
    "Llama": {}, "Qwen3": {"head_dim": 8}, "Mistral": {"sliding_window": 6, "head_dim": 8},
    "Gemma2": {**WINDOWS, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 4.0}, "Gemma3Text": WINDOWS,
    "Mixtral": {"num_local_experts": 4, "output_router_logits": True}, "Granite": {"logits_scaling": 3.0},
}  # fmt: skip


def show(ctx: Context, evidence: Evidence) -> None:
    """Compare each family's gradients, with padding and masked prompts; count what DDP reduces."""
    worst = {}
    for kind, families in (("double", DOUBLE), ("single", SINGLE)):
        errors = {name: _family_error(name, extra, ctx.seed) for name, extra in families.items()}
        worst[kind] = max(errors.values())
        for name, error in errors.items():
            evidence.row(OURS, {"gradient error": Measurement.of(error, "relative")}, workload=f"{name}, float64")
    evidence.measured("gradients-exact", Measurement.of(worst["double"], "relative"))
    evidence.measured("gradients-exact-float32-norms", Measurement.of(worst["single"], "relative"))
    evidence.measured("collectives-once", Measurement.of(_reduced_a_gradient(ctx.seed), "ratio"))


def _make(name: str, extra: dict[str, Any], seed: int) -> Any:
    import transformers

    config = getattr(transformers, f"{name}Config")(**{**SMALL, **extra})
    kinds = {"experts_implementation": "eager"} if "num_local_experts" in extra else {}
    attention = "eager" if name == "Gemma2" else "sdpa"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        auto: Any = transformers.AutoModelForCausalLM
        return auto.from_config(config, attn_implementation=attention, **kinds).double()


def _batch(seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 64, (2, 29), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, 23:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :7] = -100
    return {"input_ids": ids, "attention_mask": mask}, labels


def _family_error(name: str, extra: dict[str, Any], seed: int) -> float:
    model = _make(name, extra, seed).train()
    inputs, labels = _batch(seed)
    output = model(**inputs, use_cache=False)
    logits, targets = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    loss = torch.nn.functional.cross_entropy(logits, targets)
    if getattr(output, "aux_loss", None) is not None:
        loss = loss + model.config.router_aux_loss_coef * output.aux_loss
    names, parameters = zip(*model.named_parameters(), strict=True)
    wanted = torch.autograd.grad(loss, parameters)
    with enable_streambp(model, layer_chunk_size=7, head_chunk_size=5):
        got = torch.autograd.grad(model(**inputs, labels=labels).loss, parameters)
    scale = 1e-9 * max(float(grad.norm()) for grad in wanted)
    kept = [(key, a, b) for key, a, b in zip(names, got, wanted, strict=True) if float(b.norm()) > scale]
    return gradient_error({key: a for key, a, _ in kept}, {key: b for key, _, b in kept})


def _reduced_a_gradient(seed: int) -> float:
    """Return how many numbers DDP hands to its communication for each number of a gradient."""
    model = _make("Llama", {}, seed).train()
    inputs, labels = _batch(seed)
    sent = [0]

    def count(_, bucket):  # type: ignore[no-untyped-def] # DDP wants its own annotations or none
        sent[0] += bucket.buffer().numel()
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    with tempfile.NamedTemporaryFile() as meeting:
        dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
        try:
            with enable_streambp(model, layer_chunk_size=5):
                wrapped = DistributedDataParallel(model)
                wrapped.register_comm_hook(None, count)
                wrapped(**inputs, labels=labels).loss.backward()
        finally:
            dist.destroy_process_group()
    return sent[0] / sum(int(parameter.numel()) for parameter in model.parameters())
