"""Splitting data among clients: Dirichlet shares of every class, by Flower's partitioner."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from thrifty._common.checks import number, whole
from thrifty._common.extras import require

#: Seeds that are tried, ten draws each.
SEEDS = 20


def dirichlet_partition(
    cells: Sequence[int] | Sequence[str], clients: int, alpha: float, *, seed: int = 0, at_least: int = 1
) -> list[list[int]]:
    """Split examples among clients: of every class each client gets a share drawn from a Dirichlet distribution.

    Args:
        cells: The class of every example: a label, or whatever clients shall differ in (domain and label).
        clients: How many.
        alpha: Concentration: 50 is nearly even, 0.05 leaves most clients one or two classes.
        seed: Of the draw.
        at_least: Examples of the poorest client; drawn again until that is so, some hundred times at most.

    Returns:
        Each client's rows.

    Raises:
        ValueError: There are fewer examples than clients, or every draw left somebody with too few.
        ImportError: flwr-datasets is not installed.

    Example:
        >>> sorted(len(rows) for rows in dirichlet_partition([0, 1] * 50, 4, 50.0))
        [21, 25, 26, 28]

    Source:
        Yurochkin et al., ICML 2019; the partitioner is flwr-datasets'.
    """
    whole("clients", clients)
    number("alpha", alpha, "a positive number", least=1e-9)
    if len(cells) < clients:
        raise ValueError(f"cells: expected at least one example for each of {clients} clients, got {len(cells)}")
    partitioners = require("flwr_datasets.partitioner", extra="federated")
    dataset = require("datasets", extra="federated").Dataset.from_dict({"cell": list(cells), "row": range(len(cells))})
    for attempt in range(SEEDS):
        made = partitioners.DirichletPartitioner(
            clients, "cell", float(alpha), min_partition_size=at_least, seed=seed + (attempt << 20)
        )
        made.dataset = dataset
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it draws again
            try:
                return [list(made.load_partition(client)["row"]) for client in range(clients)]
            except ValueError:  # ten draws, and somebody has too few in each
                continue
    raise ValueError(f"at_least: expected what {10 * SEEDS} draws can give with alpha {alpha:g}, got {at_least}")
