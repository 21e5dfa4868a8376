"""A federation on local files, as `thrifty leff run` does it: a model folder, texts, clients by Dirichlet shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from thrifty._common.checks import number, one_of, whole
from thrifty._common.extras import require
from thrifty._common.tables import read_table
from thrifty._common.texts import documents
from thrifty.training.leff.client import LeffClient
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.importance import Batch
from thrifty.training.leff.layers import LayerView
from thrifty.training.leff.partition import dirichlet_partition
from thrifty.training.leff.rounds import History, RoundRecord
from thrifty.training.leff.sampling import check_capacity
from thrifty.training.leff.simulation import simulate
from thrifty.training.leff.streams import stream

#: Ways to federate that the command knows.
METHODS = (
    "leff",
    "local",
    "centralised",
    "fedavg",
    "fedprox",
    "fedbitfit",
    "fedlora",
    "slora",
    "hetlora",
    "flexlora",
    "flora",
    "fedra",
    "head",
)


@dataclass(frozen=True)
class Recipe:
    """What a run is.

    Args:
        task: ``"classification"``: a table with ``text`` and ``label``; ``"lm"``: texts.
        clients: How many.
        alpha: Concentration of the Dirichlet shares over labels (or, with ``by``, over that column).
        capacity: Layers that clients can train, repeated over them in order.
        rounds: Of the federation.
        length: Tokens of a text.
        proxy: Texts that the server keeps, to distil on; they are no client's.
        held_out: Share of the texts that the model is evaluated on.
        by: Column that clients differ in.

    Raises:
        ValueError: A setting is out of range.
    """

    task: Literal["classification", "lm"] = "classification"
    clients: int = 8
    alpha: float = 1.0
    capacity: tuple[int, ...] = (1, 1, 2, 4)
    rounds: int = 20
    length: int = 64
    proxy: int = 200
    held_out: float = 0.1
    by: str = "label"

    def __post_init__(self) -> None:
        one_of("task", self.task, ("classification", "lm"))
        for name in ("clients", "rounds", "length", "proxy"):
            whole(name, getattr(self, name))
        number("alpha", self.alpha, "a positive number", least=1e-9)
        number("held_out", self.held_out, "a share from 0 to below 1", least=0, below=1)
        if not self.capacity:
            raise ValueError("capacity: expected at least one number of layers, got none")


@dataclass(frozen=True)
class Workload:
    """A model, its clients and what the server has.

    Args:
        model: The global model.
        tokenizer: Of it.
        clients: With their data.
        proxy: Of the server, without labels for LEFF's distillation, with them for importance.
        held_out: Columns that nobody trains on; ``None``: there are none.
        classes: Names of the labels; empty for a language model.
    """

    model: Any
    tokenizer: Any
    clients: list[LeffClient]
    proxy: list[Batch]
    held_out: dict[str, Tensor] | None
    classes: tuple[str, ...]


def prepare(recipe: Recipe, model_folder: Path, data: Path, config: LeffConfig) -> Workload:
    """Read the files, and split the texts.

    Args:
        recipe: Of the run.
        model_folder: With ``config.json``, weights and tokenizer.
        data: A CSV or Parquet table (classification), or texts (``lm``).
        config: Of the federation; its seed splits the data.

    Raises:
        ValueError: The table lacks a column, or there are too few texts.
        OSError: There is no such model or file.
    """
    transformers = require("transformers", extra="federated")
    if not (model_folder / "config.json").exists():
        raise FileNotFoundError(f"{model_folder}: expected a model folder with config.json")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    known = transformers.AutoConfig.from_pretrained(model_folder, local_files_only=True).id2label
    texts, named, cells = _read(recipe, data)
    classes = order_of(named, known) if named is not None else ()
    labels = None if named is None else [classes.index(name) for name in named]
    columns = _columns(tokenizer, texts, labels, recipe.length)
    rows = stream(config.seed, "partition").permutation(len(texts))
    held, kept = round(recipe.held_out * len(rows)), min(recipe.proxy, len(rows) // 4)
    train = rows[held + kept :]
    if len(train) < recipe.clients:
        raise ValueError(f"data: expected at least one text for each of {recipe.clients} clients, got {len(train)}")
    parts = dirichlet_partition(
        [cells[row] for row in train], recipe.clients, recipe.alpha, seed=config.seed, at_least=0
    )
    clients = []
    for index, part in enumerate(parts):
        mine = torch.as_tensor(train[np.asarray(part, dtype=int)])
        capacity = recipe.capacity[index % len(recipe.capacity)]
        clients.append(LeffClient(f"{index:03d}", {k: v[mine] for k, v in columns.items()}, capacity))
    proxy_rows = torch.as_tensor(rows[held : held + kept])
    proxy: list[Batch] = [
        {k: v[some] for k, v in columns.items()} for some in torch.split(proxy_rows, config.batch_size)
    ]
    test = {k: v[torch.as_tensor(rows[:held])] for k, v in columns.items()} if held else None
    auto = transformers.AutoModelForSequenceClassification if classes else transformers.AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        options = {"num_labels": len(classes), "ignore_mismatched_sizes": True} if classes else {}
        model = auto.from_pretrained(model_folder, local_files_only=True, dtype=torch.float32, **options)
    for capacity in recipe.capacity:
        check_capacity(capacity, LayerView(model).num_layers)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    if classes:
        model.config.id2label = dict(enumerate(classes))
        model.config.label2id = {name: index for index, name in enumerate(classes)}
    return Workload(model, tokenizer, clients, proxy, test, classes)


def run(
    recipe: Recipe,
    model_folder: Path,
    data: Path,
    out: Path,
    config: LeffConfig,
    *,
    progress: Callable[[RoundRecord], object] | None = None,
) -> History:
    """Federate with LEFF; checkpoints, ledger and the final model go to a folder, and a run that is there goes on.

    Args:
        recipe: Of the run.
        model_folder: The model to begin with.
        data: As in :func:`prepare`.
        out: The run's folder.
        config: Of the federation.
        progress: Called with every round's record.

    Raises:
        ValueError: A setting does not fit, or the run that is there has other settings.
        OSError: There is no such model or file, or the folder holds something else.
    """
    from thrifty._common.runs import enter_run

    begun = {
        "model": str(model_folder.resolve()), "data": str(data.resolve()),
        **{k: list(v) if isinstance(v, tuple) else v for k, v in vars(replace(recipe, rounds=1)).items()},
    }  # fmt: skip
    made = prepare(recipe, model_folder, data, config)
    enter_run(out, "leff", begun)  # nothing is begun that cannot go on
    history = simulate(
        made.model, made.clients, made.proxy, recipe.rounds, config, evaluate=evaluation(made), out=out / "checkpoints",
        progress=progress,
    )  # fmt: skip
    made.model.save_pretrained(out / "model")
    made.tokenizer.save_pretrained(out / "model")
    history.save(out / "history.json", force=True)
    return history


def run_rival(method: str, recipe: Recipe, model_folder: Path, data: Path, config: LeffConfig) -> dict[str, Any]:
    """Federate with a rival on the same split, and return its last evaluation and its traffic.

    Args:
        method: One of :data:`METHODS`.
        recipe: Of the run.
        model_folder: The model to begin with.
        data: As in :func:`prepare`.
        config: Of local training.

    Raises:
        ValueError: There is no such method, or it is not applicable to the model.
    """
    from thrifty.training.leff import rivals

    one_of("method", method, METHODS)
    shared = {"participation": 1.0, "clip_norm": None, "server_optimizer": "none"}
    if set_ := [name for name, plain in shared.items() if getattr(config, name) != plain]:
        raise ValueError(f"{set_[0]}: expected its default with a rival, which has no such setting, got another")
    made = prepare(recipe, model_folder, data, config)
    kinds: dict[str, Callable[[], rivals.Method]] = {
        "leff": lambda: rivals.Leff(made.model, config, made.proxy),
        "fedavg": lambda: rivals.Averaging(made.model, config),
        "local": lambda: rivals.LocalOnly(made.model, config),
        "centralised": lambda: rivals.Centralised(made.model, config),
        "fedprox": lambda: rivals.Averaging(made.model, config.with_overrides(proximal=config.proximal or 0.01)),
        "fedbitfit": lambda: rivals.Averaging(made.model, config, "biases"),
        "head": lambda: rivals.Averaging(made.model, config, "head"),
        "fedlora": lambda: rivals.FedLoRA(made.model, config),
        "slora": lambda: rivals.SLoRA(made.model, config),
        "hetlora": lambda: rivals.HetLoRA(made.model, config),
        "flexlora": lambda: rivals.FlexLoRA(made.model, config),
        "flora": lambda: rivals.FLoRA(made.model, config),
        "fedra": lambda: rivals.FedRA(made.model, config),
    }
    clients = made.clients
    if method == "centralised":
        pieces = [cast(dict[str, Tensor], client.data) for client in clients]
        columns = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        clients = [LeffClient("all", columns, capacity=1)]
    trace = rivals.federate(kinds[method](), clients, recipe.rounds, evaluation(made), every=recipe.rounds)
    return {"method": method, "rounds": recipe.rounds, **trace.scores[-1], "down": sum(trace.down), "up": sum(trace.up)}


def evaluation(made: Workload) -> Callable[[nn.Module], dict[str, float]]:
    """Return what measures loss (and accuracy) on the held-out texts."""

    @torch.no_grad()
    def evaluate(model: nn.Module) -> dict[str, float]:
        if made.held_out is None:
            return {}
        loss = right = counted = 0.0
        total = len(made.held_out["labels"])
        for at in range(0, total, 64):
            batch = {key: value[at : at + 64] for key, value in made.held_out.items()}
            output = model(**batch)
            share = len(batch["labels"])
            loss, counted = loss + float(output.loss) * share, counted + share
            if made.classes:
                right += float((output.logits.argmax(1) == batch["labels"]).sum())
        return {"loss": loss / counted, **({"accuracy": 100 * right / counted} if made.classes else {})}

    return evaluate


def order_of(named: Sequence[str], known: Mapping[int, str]) -> tuple[str, ...]:
    """Return the classes in order: the model's own where its head knows all labels of the data, else sorted.

    Args:
        named: The label of every text.
        known: The model's ``id2label``.

    Raises:
        ValueError: There is one label only.
    """
    found = sorted(set(named))
    if len(found) < 2:
        raise ValueError(f"data: expected at least two labels, got {len(found)}")
    own = tuple(known[index] for index in sorted(known))
    return own if set(found) <= set(own) else tuple(found)


def _read(recipe: Recipe, data: Path) -> tuple[list[str], list[str] | None, list[str]]:
    """Return texts, their labels' names (none for a language model), and the cells that they are dealt out by."""
    if recipe.task == "lm":
        texts = list(documents(data))
        return texts, None, [str(index % 8) for index in range(len(texts))]
    table = read_table(data)
    for name in {"text", "label", recipe.by}:
        if name not in table:
            raise ValueError(f"data: expected the column {name!r}, got {', '.join(table)}")
    for name in ("text", "label"):
        lacking = sum(value is None or (isinstance(value, float) and math.isnan(value)) for value in table[name])
        if lacking:
            raise ValueError(f"data: expected a {name} in every row, got {lacking} rows without")
    named = [f"{value:.15g}" if isinstance(value, float) else str(value) for value in table["label"]]
    return [str(t) for t in table["text"]], named, [str(c) for c in table[recipe.by]]


def _columns(tokenizer: Any, texts: Sequence[str], labels: list[int] | None, length: int) -> dict[str, Tensor]:
    tokens = tokenizer(list(texts), max_length=length, truncation=True, padding="max_length", return_tensors="pt")
    mask = tokens["attention_mask"]
    targets = torch.where(mask.bool(), tokens["input_ids"], -100) if labels is None else torch.tensor(labels)
    return {"input_ids": tokens["input_ids"], "attention_mask": mask, "labels": targets}
