"""Retrieval in both directions, with any number of captions an image: recall at K, as Flickr30k and COCO report it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


@torch.no_grad()
def recalls(
    image_features: Float[Tensor, "images dim"],
    text_features: Float[Tensor, "texts dim"],
    image_of_text: Int[Tensor, " texts"] | None = None,
    *,
    at: Sequence[int] = (1, 5, 10),
    chunk_size: int = 1024,
) -> dict[str, float]:
    """Return the share of queries that find a partner among the K nearest.

    Args:
        image_features: Of unit length.
        text_features: Of unit length.
        image_of_text: The image that each caption belongs to; by default the one in the same place.
        at: K's.
        chunk_size: Queries at once.

    Returns:
        ``text_retrieval_recall@K`` (an image finds one of its captions), ``image_retrieval_recall@K`` (a caption
        finds its image), and ``mean_recall@1``, the mean of the two at K = 1.

    Raises:
        ValueError: Captions and images do not fit together.

    Example:
        >>> import torch
        >>> recalls(torch.eye(3), torch.eye(3)[[0, 2, 1]], at=(1, 2))["mean_recall@1"]
        0.3333333333333333

    Source:
        Gadre et al., arXiv 2304.14108 (DataComp), the main metric of retrieval tasks.
    """
    texts, images = len(text_features), len(image_features)
    if image_of_text is None:
        if texts != images:
            raise ValueError(f"image_of_text: expected it for {texts} captions of {images} images, got none")
        image_of_text = torch.arange(texts)
    if len(image_of_text) != texts or (
        texts and not 0 <= int(image_of_text.min()) <= int(image_of_text.max()) < images
    ):
        raise ValueError(f"image_of_text: expected {texts} numbers below {images}, got {tuple(image_of_text.shape)}")
    owner = image_of_text.to(image_features.device)
    most = max(at)
    found: dict[str, float] = {}
    for name, queries, others in (
        ("image", text_features, image_features),
        ("text", image_features, text_features),
    ):
        hits = torch.zeros(len(at), dtype=torch.float64)
        for low in range(0, len(queries), chunk_size):
            near = (queries[low : low + chunk_size] @ others.mT).topk(min(most, len(others)), dim=1).indices
            wanted = torch.arange(low, low + len(near), device=near.device)
            right = near == owner[wanted].unsqueeze(1) if name == "image" else owner[near] == wanted.unsqueeze(1)
            hits += torch.stack([right[:, :k].any(1).sum() for k in at]).cpu()
        for k, count in zip(at, hits.tolist(), strict=True):
            found[f"{name}_retrieval_recall@{k}"] = count / len(queries)
    if 1 in at:
        found["mean_recall@1"] = (found["image_retrieval_recall@1"] + found["text_retrieval_recall@1"]) / 2
    return found
