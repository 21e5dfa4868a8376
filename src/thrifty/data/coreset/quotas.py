"""How large a subset is, and what share of it each class gets."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from thrifty._common.checks import is_number, whole


def size_of(budget: Any, n: int, classes: int = 1, per_class: bool = False) -> int:
    """Return how many of n samples a budget allows.

    Args:
        budget: A fraction in (0, 1), rounded up, or a whole number of samples.
        n: Samples there are.
        classes: How many classes there are, for ``per_class``.
        per_class: A whole number counts for each class.

    Raises:
        ValueError: It is neither, or it is larger than what there is.

    Example:
        >>> size_of(0.1, 1795), size_of(5, 100, classes=10, per_class=True)
        (180, 50)
    """
    whole("n", n)
    if is_number(budget) and isinstance(budget, Integral) and int(budget) >= 1:
        k = int(budget) * (classes if per_class else 1)
    elif is_number(budget) and 0 < budget < 1 and not per_class:
        k = math.ceil(budget * n - 1e-9)
    else:
        wanted = "a whole number of samples a class" if per_class else "a fraction in (0, 1) or a number of samples"
        raise ValueError(f"budget: expected {wanted}, got {budget!r}")
    if k > n:
        raise ValueError(f"budget: expected at most the {n} samples there are, got {k}")
    return k


def class_quotas(labels: Int[Tensor, " n"], k: int) -> dict[int, int]:
    """Return how many of k samples each class gets: its share rounded up, then trimmed to k where most was given.

    No class gets more than it has, and none gets nothing.

    Args:
        labels: The classes of all samples.
        k: Samples over all classes.

    Raises:
        ValueError: There are more classes than k, or fewer samples.

    Example:
        >>> import torch
        >>> class_quotas(torch.tensor([0] * 6 + [1] * 3 + [2]), 5)
        {0: 3, 1: 1, 2: 1}

    Source:
        CORDS' quota ⌈k n_c / n⌉, which may exceed k there.
    """
    classes, counts = torch.unique(labels, return_counts=True)
    n = len(labels)
    if not len(classes) <= whole("k", k) <= n:
        few = ", ".join(map(str, classes.tolist()))
        raise ValueError(
            f"k: expected at least one sample for each of the classes {few}, and at most {n}, got {k}; "
            'or choose selection="global"'
        )
    exact = [k * int(count) / n for count in counts]
    given = [math.ceil(share - 1e-9) for share in exact]
    while sum(given) > k:  # the most over its share; among equals the last
        over = [(have - share, at) for at, (have, share) in enumerate(zip(given, exact, strict=True)) if have > 1]
        given[max(over)[1]] -= 1
    return dict(zip(classes.tolist(), given, strict=True))
