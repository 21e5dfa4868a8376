"""Models and text for the command line: from a folder, or from a config alone with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.runs import PRECISIONS
from thrifty._common.texts import documents
from thrifty._common.weights import load_pretrained, read_pretrained
from thrifty.inference.speculation.shapes import read_config


def load_model(source: str, precision: str, device: str, *, random: bool, name: str = "target") -> Any:
    """Return a causal language model in evaluation mode.

    Args:
        source: A folder of transformers; with ``random`` a config or a profile's name too.
        precision: ``"fp32"`` or ``"bf16"``.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"``: an accelerator where there is one.
        random: Random weights, in place of those in the folder.
        name: For messages.

    Raises:
        ValueError: There is no such folder, or transformers has no class for the config.
    """
    torch, transformers = require("torch", extra="llm"), require("transformers", extra="llm")
    one_of("precision", precision, PRECISIONS)
    kind = torch.float32 if precision == "fp32" else torch.bfloat16
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not random:
        if not Path(source).is_dir():
            raise ValueError(f"{name}: expected a folder of transformers (--random takes a config), got {source!r}")
        found = load_pretrained(transformers.AutoModelForCausalLM, source, name=name, dtype=kind)
        return found.eval().to(device)
    _, fields = read_config(source)
    rest = {k: v for k, v in fields.items() if k not in {"model_type", "quantization_config"}}
    config = transformers.AutoConfig.for_model(fields.get("model_type", ""), **rest)
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=kind).eval()
        for module in model.modules():  # routers start at zero in some families, and would send all tokens one way
            if type(module).__name__.endswith(("Router", "Gate")) and hasattr(module, "weight"):
                torch.nn.init.normal_(module.weight)
    return model


def read_tokens(source: str, data: Path) -> Any:
    """Return the tokens of text files, by the model's own tokenizer.

    Raises:
        ValueError: The folder holds no tokenizer.
    """
    transformers = require("transformers", extra="llm")
    try:
        tokenizer = read_pretrained(transformers.AutoTokenizer, source, name="data")
    except (OSError, ValueError) as error:
        raise ValueError(f"data: expected a tokenizer in {source} to read it with, got none ({error})") from None
    return tokenizer("\n".join(documents(data)), return_tensors="pt").input_ids[0]
