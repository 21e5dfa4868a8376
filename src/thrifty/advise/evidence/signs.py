"""Methods that were switched on here: was the predicted saving a saving, and the predicted cost a cost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise.evidence import memory, times
from thrifty.advise.evidence.families import configuration
from thrifty.advise.offers import delta_of
from thrifty.bench import registry
from thrifty.bench.context import Context


@dataclass(frozen=True)
class Sign:
    """A change that was predicted (any unit) and what was measured (with and without)."""

    what: str
    predicted: float
    measured: tuple[float, float]

    @property
    def right(self) -> bool:
        """Whether both went the same way; a measured change within 2 % is none, and agrees with either."""
        without, with_it = self.measured
        change = (with_it - without) / without
        return abs(change) <= 0.02 or (change < 0) == (self.predicted < 0)


def signs(ctx: Context) -> Iterator[Sign]:
    """Yield every method's savings that this machine can measure."""
    yield from _streaming()
    yield from _states()
    yield from _drafts()
    yield from _seconds(ctx)


def _streaming() -> Iterator[Sign]:
    for family in ("llama", "qwen3", "gemma3", "phi", "olmo2", "gpt-neox"):
        without = memory.family(family, "checkpoint")[0]
        with_it, predicted = memory.family(family, "streambp")
        before = memory.foretold(configuration(family), "checkpoint", 512, "float32", "sgd")[0]
        yield Sign(f"streambp, peak of {family}", predicted - before, (without, with_it))


def _states() -> Iterator[Sign]:
    from thrifty.training.sumo.memory import estimate_state_bytes

    for hidden, count, rank in ((256, 8, 16), (512, 4, 64), (1024, 2, 128)):
        for rival in ("adamw", "galore", "muon"):
            facts = {"hidden": hidden, "matrices": count, "rank": rank, "optimizer": rival}
            delta = delta_of(registry.get("sumo"), Workload(Task.LM_FINETUNING, facts))
            shapes = [(hidden, hidden)] * count
            theirs, ours = (float(estimate_state_bytes(shapes, rank, name)["total"]) for name in (rival, "sumo"))
            change = delta.total(Resource.OPTIMIZER_STATE)
            yield Sign(f"sumo, state beside {rival}, {hidden} wide", change, (theirs, ours))


def _drafts() -> Iterator[Sign]:
    """Speculative decoding of Qwen2-57B-A14B on two A800, as published: acceptance, and the peak speed-up."""
    for alpha, speedup in ((0.95, 2.18), (0.80, 1.72), (0.72, 1.29)):
        facts: dict[str, float | str] = {
            "model": "qwen2-57b-a14b", "draft": "qwen2-0.5b", "hardware": "a800-80gb", "devices": 2, "tokens": 1e6,
            "batch": 32, "alpha": alpha,
        }  # fmt: skip
        delta = delta_of(registry.get("speculation"), Workload(Task.LM_SERVING, facts))
        name = f"speculation, seconds at acceptance {alpha} (published: arXiv 2505.19645)"
        yield Sign(name, delta.total(Resource.SECONDS), (1.0, 1 / speedup))


def _seconds(ctx: Context) -> Iterator[Sign]:
    for name, (predicted, without, with_it) in {**_tokens(), **_trees(), **_steps()}.items():
        found = ctx.time({"without": without, "with": with_it}, repeats=3, at_most=4.0)
        yield Sign(name, predicted, (found["without"].seconds.median, found["with"].seconds.median))


Timed = tuple[float, Callable[[], object], Callable[[], object]]


def _tokens() -> dict[str, Timed]:
    """A vision transformer with and without fewer tokens."""
    import timm
    import torch

    from thrifty.inference.token_reduction import FreqReduceConfig, reduce_tokens

    facts = {"images": 4, "image_size": 224, "patch": 16, "hidden": 192, "layers": 12}
    delta = delta_of(registry.get("token-reduction"), Workload(Task.IMAGE_INFERENCE, facts))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain, reduced = (timm.create_model("vit_tiny_patch16_224", pretrained=False).eval() for _ in range(2))
        images = torch.randn(4, 3, 224, 224)
    reduce_tokens(reduced, FreqReduceConfig())

    def call(model: torch.nn.Module) -> Callable[[], object]:
        def run() -> None:
            with torch.inference_mode():
                model(images)

        return run

    return {"token-reduction, seconds of 4 images": (delta.total(Resource.FLOPS), call(plain), call(reduced))}


def _trees() -> dict[str, Timed]:
    """A tree with and without local search."""
    from sklearn.tree import DecisionTreeClassifier

    from thrifty.solvers.trees import TreeLocalSearchClassifier

    rng = np.random.default_rng(0)
    rows, features = 2000, 8
    table = rng.normal(size=(rows, features))
    labels = (table[:, 0] * table[:, 1] + 0.3 * rng.normal(size=rows) > 0).astype(int)
    facts = {"rows": rows, "features": features}
    delta = delta_of(registry.get("trees"), Workload(Task.TABULAR_CLASSIFICATION, facts))
    plain = lambda: DecisionTreeClassifier(max_depth=4, random_state=0).fit(table, labels)  # noqa: E731
    searched = lambda: TreeLocalSearchClassifier(DecisionTreeClassifier(max_depth=4, random_state=0)).fit(table, labels)  # noqa: E731
    return {"trees, seconds of a fit": (delta.total(Resource.SECONDS), plain, searched)}


def _steps() -> dict[str, Timed]:
    """A training step with and without streaming: a few per cent are predicted on top."""
    shape = (2, 128, 1024)
    facts = {"layers": 2, "hidden": 128, "sequence": 1024, "vocabulary": 2048, "bytes_a_number": 4, "feed_forward": 512}
    delta = delta_of(registry.get("streambp"), Workload(Task.LM_FINETUNING, facts))
    plain, streamed = times.step(*shape, True), times.step(*shape, True, streamed=True)
    return {"streambp, seconds of a step": (delta.total(Resource.FLOPS), plain, streamed)}


__all__ = ["Sign", "signs"]
