"""The ledger of fine-tuning on a pool of examples: arithmetic of training, and of choosing what to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty._common.checks import one_of, whole
from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise import hardware
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.model import read_decoder
from thrifty.advise.offers import offers
from thrifty.inference.speculation import MoEShape
from thrifty.inference.speculation.shapes import read_config

#: Families whose weights follow from a few fields, without transformers: gated feed-forward layers, no biases.
GATED = ("llama", "mistral", "mixtral", "qwen2_moe", "qwen3", "qwen3_moe", "olmoe", "phi3")


def advise_data(
    model: str | Path | Any,
    *,
    pool: int,
    selected: int,
    tokens: int = 2048,
    epochs: int = 2,
    device: str = "h100-80gb",
    selection: str = "none",
    profiles: str | Path | None = None,
) -> Advice:
    """Say what fine-tuning on a pool costs, and what choosing from it would save.

    Args:
        model: As in :func:`advise_training`.
        pool: Examples at hand.
        selected: Examples to be chosen.
        tokens: Of an example.
        epochs: Passes over what is trained on.
        device: A profile's name or JSON file.
        selection: How examples are chosen now: ``"none"``, ``"rds+"``, ``"mid-perplexity"`` or ``"less"``.
        profiles: A folder of further profiles.

    Raises:
        ValueError: A number is not positive, or the model or the selection is unknown.
    """
    for name, value in (("pool", pool), ("selected", selected), ("tokens", tokens), ("epochs", epochs)):
        whole(name, value)
    if selected > pool:
        raise ValueError(f"selected: expected at most the pool's {pool} examples, got {selected}")
    one_of("selection", selection, ("none", "rds+", "mid-perplexity", "less"))
    place = hardware.device(device, profiles)
    named, active, layers = _sizes(model)
    trained = pool if selection == "none" else selected
    training = 6.0 * active * tokens * trained * epochs
    choosing = {"none": 0.0, "less": 6.0}.get(selection, 2.0) * active * tokens * pool
    parts = [
        Part("training", Resource.FLOPS, training, "6 · weights · tokens · examples · epochs"),
        Part("examples trained on", Resource.EXAMPLES, trained, "the pool, or what is selected"),
    ]
    seconds = {"training": training / place.flops["bfloat16"]}
    if choosing:
        parts.append(
            Part("choosing", Resource.FLOPS, choosing, "2 (forward) or 6 (gradients) · weights · tokens · pool")
        )
        seconds["choosing"] = choosing / place.flops["bfloat16"]
    facts: dict[str, float | str] = {
        "parameters": active, "layers": layers, "pool": pool, "selected": selected, "sequence": tokens,
        "epochs": epochs, "selection": selection,
    }  # fmt: skip
    now = Account(tuple(parts), seconds, rate=place.flops["bfloat16"])
    said = f"fine-tuning {named} on {trained} of {pool} examples of {tokens} tokens, {epochs} epochs"
    return Advice(said, now, offers(Workload(Task.LM_SELECTION, facts), now))


def _sizes(model: str | Path | Any) -> tuple[str, float, int]:
    """Return a model's name, weights that a token is multiplied with, and layers: by arithmetic where that is exact."""
    if isinstance(model, str | Path):
        name, fields = read_config(model)
        if fields.get("model_type") in GATED:
            return name, float(MoEShape.from_config(model, build=False).active_params), int(fields["num_hidden_layers"])
    decoder = read_decoder(model)
    return decoder.name, decoder.active, decoder.layers
