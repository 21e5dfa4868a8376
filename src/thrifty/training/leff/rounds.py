"""What passes between server and clients, and the ledger that is kept of it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from thrifty._common.checks import whole
from thrifty._common.files import write_whole
from thrifty._common.settings import dump, parse
from thrifty.training.leff.context import Layout

#: Schema of a history's file.
SCHEMA = "thrifty.leff.history"


@dataclass(frozen=True)
class Report:
    """What a client says before a round.

    Args:
        client: Its name; the same in every round.
        examples: The size of its data, D_i.
        capacity: Layers that it can train, L_i; or ``None``, where ``memory`` says it.
        memory: Bytes that it can use; the server derives the capacity.

    Raises:
        ValueError: It has no name, or neither capacity nor memory.

    Example:
        >>> Report("phone-3", examples=120, capacity=1).capacity
        1

    Source:
        Shen et al., NeurIPS 2025, section 3 (step 1 of a round).
    """

    client: str
    examples: int
    capacity: int | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        if not self.client:
            raise ValueError("client: expected a name, got none")
        whole("examples", self.examples, least=0, what="a whole number of examples")
        if self.capacity is None and self.memory is None:
            raise ValueError(f"capacity: expected layers, or bytes as memory, of client {self.client!r}, got neither")


@dataclass(frozen=True)
class Order:
    """What a client is to do in a round.

    Args:
        client: Its name.
        round: From 1.
        layout: The layers of its model; ``layout.block`` is what it trains.
        examples: As it reported.
    """

    client: str
    round: int
    layout: Layout
    examples: int


@dataclass
class Update:
    """What a client sends back.

    Args:
        client: Its name.
        round: That it trained in.
        state: What it trained, by its name in the global model.
        examples: The size of its data.
        metrics: Numbers of its own, for the ledger.
    """

    client: str
    round: int
    state: dict[str, Tensor]
    examples: int
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class ClientRecord:
    """One client in one round.

    Args:
        block: Layers that it was given to train.
        depth: Layers of its model.
        status: ``"averaged"``, ``"lost"`` (no reply in time), or why its reply was refused.
        down: Bytes that were sent to it.
        up: Bytes that it sent.
        compute: Its arithmetic in a step, over that of full fine-tuning.
        metrics: Its losses, seconds and bytes.
    """

    block: tuple[int, ...]
    depth: int
    status: str = "lost"
    down: int = 0
    up: int = 0
    compute: float = 1.0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class RoundRecord:
    """One round.

    Args:
        round: From 1.
        clients: By name.
        importance: Of every layer; empty where it was not measured.
        entropy: Of the blocks' probabilities over its greatest value, by capacity.
        distill_steps: Updates of stand-ins on the server.
        seconds: Of the server's work, by kind.
        refused: Replies that nobody waited for: ``client: why``.
        failed: Nobody's update was averaged, and the model is as it was.
        evaluation: Numbers of the global model behind the round.
        simulated_seconds: How long the slowest client takes, by its declared speed.
    """

    round: int
    clients: dict[str, ClientRecord] = field(default_factory=dict)
    importance: list[float] = field(default_factory=list)
    entropy: dict[str, float] = field(default_factory=dict)
    distill_steps: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    failed: bool = False
    evaluation: dict[str, float] = field(default_factory=dict)
    simulated_seconds: float | None = None

    @property
    def averaged(self) -> list[ClientRecord]:
        """The clients whose updates count."""
        return [record for record in self.clients.values() if record.status == "averaged"]

    @property
    def down(self) -> int:
        """Bytes that the server sent."""
        return sum(record.down for record in self.clients.values())

    @property
    def up(self) -> int:
        """Bytes that it received and averaged."""
        return sum(record.up for record in self.averaged)


@dataclass
class History:
    """The rounds of a federation, in order: its ledger.

    Args:
        num_layers: L.
        rounds: What happened.

    Example:
        >>> history = History(2, [RoundRecord(1, {"a": ClientRecord((1,), 2, "averaged", down=8, up=4)})])
        >>> history.coverage(), history.down, history.up
        ([0.0, 1.0], 8, 4)

    Source:
        The ledger is ours.
    """

    num_layers: int
    rounds: list[RoundRecord] = field(default_factory=list)

    def coverage(self) -> list[float]:
        """Return how often each layer was averaged, over all updates: sums to the mean length of a block."""
        updates = [record for r in self.rounds for record in r.averaged]
        counted = Counter(layer for record in updates for layer in record.block)
        return [counted[layer] / len(updates) if updates else 0.0 for layer in range(self.num_layers)]

    @property
    def down(self) -> int:
        """Bytes that the server sent."""
        return sum(r.down for r in self.rounds)

    @property
    def up(self) -> int:
        """Bytes that clients sent and the server averaged."""
        return sum(r.up for r in self.rounds)

    def series(self, name: str) -> list[float]:
        """Return a number of the evaluation, round by round; rounds without it are left out."""
        return [r.evaluation[name] for r in self.rounds if name in r.evaluation]

    def by_client(self) -> dict[str, list[tuple[int, ClientRecord]]]:
        """Return each client's rounds."""
        found: dict[str, list[tuple[int, ClientRecord]]] = {}
        for r in self.rounds:
            for name, record in r.clients.items():
                found.setdefault(name, []).append((r.round, record))
        return dict(sorted(found.items()))

    def to_json(self) -> str:
        """Return it as JSON."""
        return dump({"num_layers": self.num_layers, "rounds": [asdict(r) for r in self.rounds]}, SCHEMA, 1)

    @classmethod
    def from_json(cls, text: str) -> History:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: It is something else.
        """
        keys = ("num_layers", "rounds")
        found = parse(text, SCHEMA, 1, known=keys, needed=keys, name="history")
        return cls(found["num_layers"], [_round(r) for r in found["rounds"]])

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write it to a file."""
        return write_whole(path, self.to_json(), force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """Read the file that :meth:`save` wrote; raises as :meth:`from_json`."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that JSON can carry."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _round(found: dict[str, Any]) -> RoundRecord:
    clients = {
        name: ClientRecord(**{**record, "block": tuple(record["block"])})
        for name, record in found.pop("clients").items()
    }
    return RoundRecord(clients=clients, **found)
