"""Models and text for the command line: from a folder, or from a config alone with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty.inference.speculation.shapes import read_config


def load_model(source: str, dtype: str, device: str, *, random: bool) -> Any:
    """Return a causal language model in evaluation mode.

    Args:
        source: A folder of transformers; with ``random`` a config or a profile's name too.
        dtype: Of the weights.
        device: Where to.
        random: Random weights, in place of those in the folder.

    Raises:
        ValueError: There is no such folder, or transformers has no class for the config.
    """
    torch, transformers = require("torch", extra="llm"), require("transformers", extra="llm")
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise ValueError(f"dtype: expected the name of a type of torch, such as bfloat16, got {dtype!r}")
    if not random:
        if not Path(source).is_dir():
            raise ValueError(f"model: there is no folder {source}; --random builds one from a config")
        found = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=kind, local_files_only=True)
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


def read_tokens(source: str, text: Path) -> Any:
    """Return the tokens of a text file, by the model's own tokenizer.

    Raises:
        ValueError: The folder holds no tokenizer.
    """
    transformers = require("transformers", extra="llm")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=True)
    except OSError as error:
        raise ValueError(f"text: there is no tokenizer in {source} ({error})") from None
    return tokenizer(text.read_text(), return_tensors="pt").input_ids[0]
