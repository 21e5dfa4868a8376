"""Methods that were switched on here: was the predicted saving a saving, and the predicted cost a cost?"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise.evidence import memory, times
from thrifty.advise.evidence.families import configuration, model
from thrifty.advise.model import read_decoder
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
    yield from _recurrence()
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


def _recurrence() -> Iterator[Sign]:
    """What a recurrent layer keeps for its backward pass, beside the cells that torch has."""
    import torch

    from thrifty.models.lrcssm import DiagonalRNN

    steps, channels, batch = 2000, 64, 4
    for rival, cell in (("gru", torch.nn.GRU), ("lstm", torch.nn.LSTM)):
        facts: dict[str, float | str] = {"sequence": steps, "state": channels, "batch": batch, "rnn": rival}
        delta = delta_of(registry.get("lrcssm"), Workload(Task.SEQUENCE_CLASSIFICATION, facts))
        inputs = torch.randn(batch, steps, channels, generator=torch.Generator().manual_seed(0))
        layers = cell(channels, channels, batch_first=True), DiagonalRNN("lrc", channels, channels)
        theirs, ours = (float(_kept(layer, inputs)) for layer in layers)
        yield Sign(f"lrcssm, kept beside {rival}", delta.total(Resource.ACTIVATIONS), (theirs, ours))


def _kept(layer: Any, inputs: Any) -> int:
    """Return bytes of the distinct tensors that a forward pass saves for the backward pass."""
    import torch

    seen: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        seen[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(inputs)
    given = {each.untyped_storage()._cdata for each in (inputs, *layer.parameters())}
    return sum(each.untyped_storage().nbytes() for key, each in seen.items() if key not in given)


def _recourse() -> dict[str, Timed]:
    """Recourse from a linear model, by closed forms and by gradients."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import scale

    from thrifty.solvers.ellice import ElliCE
    from thrifty.solvers.ellice.evidence.contenders import library

    table, labels = load_breast_cancer(return_X_y=True)
    table = scale(table)
    model = LogisticRegression(C=1 / (1e-3 * len(table)), max_iter=1000).fit(table, labels)
    asking = table[model.predict(table) == 0][:20]
    facts = {"queries": len(asking), "features": table.shape[1], "rows": len(table)}
    delta = delta_of(registry.get("ellice"), Workload(Task.TABULAR_CLASSIFICATION, facts))
    theirs, ours = library(model, table, labels, 0.01, 1e-3), ElliCE(model, epsilon=0.01, target=1)
    return {
        "ellice, seconds of 20 answers": (
            delta.total(Resource.SECONDS),
            lambda: theirs(asking),
            lambda: ours.fit(table, labels).explain(asking),
        )
    }


def _selection() -> dict[str, Timed]:
    """Fine-tuning on a pool, and on what is chosen from it: choosing included."""
    import torch

    from thrifty.data.influence import InfluenceDistillation, warm_up

    pool, selected, tokens, landmarks, layers = 64, 8, 32, 4, 8
    config = times.configuration(layers, 64)
    config._attn_implementation = "eager"
    made = model(config, "float32")
    ids = torch.randint(3, 2048, (pool + 4, tokens), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [{"input_ids": each} for each in ids]
    start = warm_up(made, rows[:pool], steps=2, lr=1e-3)

    def train(chosen: list[dict[str, Any]], epochs: int = 2) -> None:
        pupil = copy.deepcopy(made)
        adamw = torch.optim.AdamW(pupil.parameters(), lr=1e-4, foreach=False)
        for _ in range(epochs):
            for at in range(0, len(chosen), 8):
                batch = torch.tensor([row["input_ids"] for row in chosen[at : at + 8]])
                pupil(input_ids=batch, labels=batch, use_cache=False).loss.backward()
                adamw.step()
                adamw.zero_grad(set_to_none=True)

    def choose() -> None:
        picker = InfluenceDistillation(start.model, start.optimizer, num_landmarks=landmarks)
        train([rows[i] for i in picker.select(rows[:pool], rows[pool:], k=selected).indices])

    facts = {
        "parameters": read_decoder(config).active, "pool": pool, "selected": selected, "sequence": tokens,
        "layers": layers, "landmarks": landmarks, "targets": 4,
    }  # fmt: skip
    delta = delta_of(registry.get("influence"), Workload(Task.LM_FINETUNING, facts))
    return {"influence, seconds of fine-tuning": (delta.total(Resource.FLOPS), lambda: train(rows[:pool]), choose)}


def _drafting(ctx: Context) -> dict[str, Timed]:
    """Whole generations by a mixture of experts, with and without a draft that agrees with it."""
    from thrifty.inference.speculation.decode import SpeculativeDecoder
    from thrifty.inference.speculation.evidence.models import calibrated_pair, prompts

    target, draft = calibrated_pair(4, 0.05, seed=ctx.seed)
    place = times.here(ctx)
    found: dict[str, Timed] = {}
    with tempfile.TemporaryDirectory() as folder:
        names = {"model": target.config, "draft": draft.config}
        for name, config in names.items():
            (Path(folder) / f"{name}.json").write_text(config.to_json_string())
        rates = {"gib": 16, "tflops": place.flops["bfloat16"] / 1e12, "tb_per_s": place.bandwidth / 1e12}
        (Path(folder) / "here.json").write_text(json.dumps(rates))
        for batch in (1, 16):
            facts: dict[str, float | str] = {name: str(Path(folder) / f"{name}.json") for name in names}
            facts |= {"hardware": str(Path(folder) / "here.json"), "tokens": 24 * batch, "batch": batch, "alpha": 0.82}
            delta = delta_of(registry.get("speculation"), Workload(Task.LM_SERVING, facts))
            plain, drafted = (SpeculativeDecoder(target, draft, gamma) for gamma in (0, 4))
            ids = prompts(batch, 16, seed=ctx.seed)

            def call(decoder: Any, ids: Any = ids) -> Callable[[], object]:
                return lambda: decoder.generate(ids, do_sample=False, max_new_tokens=24)

            name = f"speculation, seconds of generations at batch {batch}"
            found[name] = delta.total(Resource.SECONDS), call(plain), call(drafted)
    return found


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
    for pieces in (_tokens, _trees, _steps, _recourse, _selection, lambda: _drafting(ctx)):
        for name, (predicted, without, with_it) in pieces().items():
            found = ctx.time({"without": without, "with": with_it}, repeats=3, at_most=20.0)
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
