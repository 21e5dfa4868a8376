"""One command's model and data in this process, and what it says on standard error while it works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from thrifty._common.extras import require
from thrifty._common.runs import first_process, join
from thrifty._common.weights import load_pretrained, read_pretrained
from thrifty.data.influence import cost
from thrifty.data.influence.less import Checkpoint, less_selection
from thrifty.data.influence.rivals import (
    mid_perplexity_selection,
    random_selection,
    rds_plus_selection,
)
from thrifty.data.influence.selector import InfluenceDistillation
from thrifty.data.influence.texts import tokenize_examples
from thrifty.data.influence.warmup import load_trainer_optimizer, warm_up


class Job:
    """One command's model and data, in this process."""

    def __init__(
        self, model: Path, rows: list[Any], aims: list[Any], length: int, batch: int, seed: int, device: str
    ) -> None:
        transformers = require("transformers", extra="llm")
        transformers.utils.logging.disable_progress_bar()
        self._folder, self._batch, self._seed = model, batch, seed
        place = join(device)
        self.model = load_pretrained(transformers.AutoModelForCausalLM, model).eval()
        self.model.to(place)
        tokenizer = read_pretrained(transformers.AutoTokenizer, model, name="model")
        self.pool = _tokens("--data", rows, tokenizer, length)
        self.target = _tokens("--target", aims, tokenizer, length)
        for option, found in (("--data", self.pool), ("--target", self.target)):
            if not any(label != -100 for row in found for label in row.get("labels", row["input_ids"])[1:]):
                raise ValueError(f"--length: cut to {length} tokens, no example of {option} has one to learn from")

    def announce(
        self, landmarks: int, blocks: int, tangents: int, mode: str, grad_dim: int, method: str
    ) -> dict[str, float]:
        """Print what the run will cost, before it begins."""
        N = sum(p.numel() for p in self.model.parameters())
        n, m = len(self.pool), len(self.target)
        tokens = sum(len(row["input_ids"]) for row in self.pool) / n
        layers = int(getattr(self.model.config, "num_hidden_layers", blocks))
        exact = cost.exact_flops(N, n + m) * tokens
        if method == "influence" and landmarks < n:
            spent = tokens * cost.influence_flops(
                N, n, landmarks + m, layers=layers, blocks=min(blocks, layers), tangents=tangents,
                count=mode,  # type: ignore[arg-type]
            )  # fmt: skip
            passes = landmarks + m
        else:
            share = {"random": 0.0, "rds+": 1 / 3, "mid-perplexity": 1 / 3}.get(method, 1.0)
            spent, passes = share * exact, 0 if method in {"random", "rds+", "mid-perplexity"} else n + m
        stored = cost.store_bytes(n, min(landmarks, n), m, gradient=grad_dim)
        found = {"flops": spent, "flops_exact": exact, "backward_passes": passes, "store_bytes": sum(stored.values())}
        if first_process():
            say(
                f"{n} examples of {tokens:.0f} tokens, {m} targets: about {spent:.2g} FLOPs "
                f"({spent / exact:.0%} of exact gradients), {passes} backward passes instead of {n + m} (and one a "
                f"process, a check), at most {found['store_bytes'] / 1e6:.1f} MB of rows"
            )
            if method == "influence" and landmarks >= n:
                say("every example is a landmark, so that nothing is saved; a lower --num-landmarks would")
        return found

    def picker(self, state: Path | None, steps: int, lr: float, *, params: str, **settings: Any) -> Any:
        """Build the selector, with a saved optimizer state or after a warm-up."""
        model, optimizer = self._start(state, steps, lr)
        return InfluenceDistillation(
            model, optimizer, params=params, batch_size=self._batch, seed=self._seed,
            progress=progress(first_process()), **settings,
        )  # fmt: skip

    def less(self, state: Path | None, steps: int, lr: float, k: int, groups: list[str] | None, params: str) -> Any:
        """Choose by exact gradients as LESS does."""
        return less_selection(
            [Checkpoint(*self._start(state, steps, lr))], self.pool, self.target, k, groups=groups,
            params=params, batch_size=self._batch, seed=self._seed,
        )  # fmt: skip

    def _start(self, state: Path | None, steps: int, lr: float) -> tuple[Any, Any]:
        """Return the model and its optimizer: of a checkpoint, or after a warm-up."""
        if state is not None:
            return self.model, load_trainer_optimizer(state, self.model)
        start = warm_up(self.model, self.pool, steps=steps, lr=lr, batch_size=self._batch, seed=self._seed)
        return start.model, start.optimizer

    def rival(self, method: str, k: int) -> Any:
        """Choose by another method."""
        if method == "random":
            return random_selection(self.pool, k, seed=self._seed)
        if method == "rds+":
            return rds_plus_selection(self.model, self.pool, self.target, k, batch_size=self._batch)
        return mid_perplexity_selection(self.model, self.pool, k, batch_size=self._batch)


def _tokens(option: str, rows: list[Any], tokenizer: Any, length: int) -> Any:
    """Tokenise rows; what is wrong with one is said by the option that named its file."""
    try:
        return tokenize_examples(rows, tokenizer, max_length=length)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def progress(shown: bool) -> Callable[[int, int, str], object] | None:
    """Say on standard error how far each stage is, once every tenth."""
    if not shown:
        return None
    last: dict[str, int] = {}

    def tell(done: int, total: int, what: str) -> None:
        tenth = 10 * done // max(total, 1)
        if last.get(what) != tenth:
            last[what] = tenth
            say(f"{what}: {10 * tenth} %")

    return tell


def summary(report: dict[str, Any]) -> str:
    """Say in a line what a selection took, and whether to trust it."""
    if "propagation" not in report:
        return f"{report.get('backward_passes', 0)} backward passes"
    return f"{report['backward_passes']} backward passes; propagation is {report['propagation']['verdict']}" + (
        f"; {report['excluded']} examples without a label token left out" if report["excluded"] else ""
    )


def say(text: str) -> None:
    """Print on standard error."""
    typer.echo(text, err=True)
