"""Zero-shot classification: a classifier made of class names and templates, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn import functional

from thrifty.training.amorlip.hosts import embed_texts

Tokenize = Callable[[list[str]], dict[str, Tensor]]

#: Where a task brings none of its own.
TEMPLATES = ("a photo of a {}.",)

#: FMoW's regions are Asia, Europe, Africa, the Americas, Oceania, and others, which WILDS leaves out of the worst.
OTHER_REGION = 5


@torch.no_grad()
def zero_shot_classifier(
    model: nn.Module, tokenize: Tokenize, classes: Sequence[str], templates: Sequence[str] = TEMPLATES
) -> Float[Tensor, "classes dim"]:
    """Return one direction a class: the mean over templates of its captions' features, on the sphere.

    Args:
        model: A CLIP model of open_clip or Transformers, in evaluation mode.
        tokenize: Captions to the model's inputs.
        classes: Their names.
        templates: With ``{}`` (or ``{c}``) where the name goes.

    Raises:
        ValueError: There are no classes, no templates, or a template without a place for the name.

    Source:
        Radford et al., arXiv 2103.00020, section 3.1.4.
    """
    if not classes or not templates:
        raise ValueError(f"classes, templates: expected some of each, got {len(classes)} and {len(templates)}")
    for template in templates:
        if "{}" not in template and "{c}" not in template:
            raise ValueError(f"templates: expected a {{}} in each, got {template!r}")
    device = next(model.parameters()).device
    rows = []
    for name in classes:
        captions = [template.replace("{c}", name).replace("{}", name) for template in templates]
        features = embed_texts(model, {key: value.to(device) for key, value in tokenize(captions).items()})
        rows.append(features.mean(0))
    return functional.normalize(torch.stack(rows), dim=1)


@torch.no_grad()
def classification_metrics(
    image_features: Float[Tensor, "n dim"],
    classifier: Float[Tensor, "classes dim"],
    labels: Int[Tensor, " n"],
    groups: Int[Tensor, " n"] | None = None,
) -> dict[str, float]:
    """Return the metrics of zero-shot classification, as shares.

    Args:
        image_features: Of unit length.
        classifier: A direction a class.
        labels: The images' classes.
        groups: The groups that images belong to (regions, incomes).

    Returns:
        ``acc1``, ``acc5``, ``mean_per_class_recall`` and ``F1-macro_all`` (of classes there are); with groups also
        those of the group that does worst: ``acc_wg``, ``acc_top5_wg``, and ``acc_worst_region`` (see
        :data:`OTHER_REGION`).

    Raises:
        ValueError: Labels or groups and images differ in number, a label is no class, or there is no image.

    Example:
        >>> import torch
        >>> classification_metrics(torch.eye(2), torch.eye(2), torch.tensor([0, 0]))["acc1"]
        0.5

    Source:
        Gadre et al., arXiv 2304.14108 (DataComp); Koh et al., arXiv 2012.07421 (WILDS).
    """
    if len(labels) != len(image_features) or not len(labels):
        raise ValueError(f"labels: expected {len(image_features)}, at least one, got {len(labels)}")
    if not 0 <= int(labels.min()) <= int(labels.max()) < len(classifier):
        raise ValueError(f"labels: expected numbers below the {len(classifier)} classes, got {int(labels.max())}")
    if groups is not None and len(groups) != len(labels):
        raise ValueError(f"groups: expected {len(labels)}, got {len(groups)}")
    true, labels = labels.cpu(), labels.to(image_features.device)
    near = (image_features @ classifier.mT).topk(min(5, len(classifier)), dim=1).indices
    right = near == labels.unsqueeze(1)
    first = right[:, 0].double()
    counts = torch.bincount(labels, minlength=len(classifier)).double()
    hits = torch.bincount(labels, weights=first, minlength=len(classifier))
    any_of_five = right.any(1).double()
    found = {
        "acc1": float(first.mean()),
        "acc5": float(any_of_five.mean()),
        "mean_per_class_recall": float((hits / counts)[counts > 0].mean()),
        "F1-macro_all": float(
            f1_score(true, near[:, 0].cpu(), labels=np.unique(true), average="macro", zero_division=0)
        ),
    }
    if groups is not None:
        accuracy, top5 = (
            {g: float(of[groups == g].mean()) for g in sorted(set(groups.tolist()))}
            for of in (first.cpu(), any_of_five.cpu())
        )
        regions = [share for group, share in accuracy.items() if group != OTHER_REGION]
        found |= {"acc_wg": min(accuracy.values()), "acc_top5_wg": min(top5.values())}
        found |= {"acc_worst_region": min(regions)} if regions else {}
    return found


def jaccard(chosen: Sequence[int], right: Sequence[int]) -> float:
    """Return |chosen ∩ right| / |chosen ∪ right|: WinoGAViL's score of one game.

    Example:
        >>> jaccard([1, 2], [2, 3])
        0.3333333333333333

    Source:
        Bitton et al., arXiv 2207.12576.
    """
    a, b = set(chosen), set(right)
    if not a | b:
        raise ValueError("chosen, right: expected at least one number, got none")
    return len(a & b) / len(a | b)


@torch.no_grad()
def associate(
    image_features: Float[Tensor, "candidates dim"], cue_features: Float[Tensor, dim], count: int
) -> list[int]:
    """Return the ``count`` candidate images nearest to a cue, for :func:`jaccard`."""
    nearest: list[int] = (image_features @ cue_features).topk(count).indices.tolist()
    return nearest
