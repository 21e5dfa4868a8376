"""``thrifty influence``: choose examples of a JSONL pool for the task of a JSONL target, or ask how far to trust it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty._common.files import write_whole

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Model = Annotated[Path, typer.Option(help="Folder of a local model with its tokenizer.")]
Train = Annotated[Path, typer.Option(help="The pool: JSONL with text, prompt and completion, messages, or input_ids.")]
Target = Annotated[Path, typer.Option(help="A few examples of the task that counts, likewise.")]
State = Annotated[
    Path | None,
    typer.Option(help="A Trainer's checkpoint folder or its optimizer.pt; without it the model is warmed up."),
]
Params = Annotated[str, typer.Option(help='"mlp-out", "all", or a regular expression on names.')]
Landmarks = Annotated[int, typer.Option("--num-landmarks", help="Examples that get a gradient of their own.", min=1)]
Blocks = Annotated[int, typer.Option("--num-blocks", help="Blocks of the embedding.", min=1)]
Tangents = Annotated[int, typer.Option("--num-tangents", help="Random directions of the embedding.", min=1)]
Length = Annotated[int, typer.Option(help="Longer examples are cut.", min=2)]
Batch = Annotated[int, typer.Option("--batch-size", help="Examples a pass.", min=1)]
Store = Annotated[Path | None, typer.Option(help="Folder that keeps what was computed; a killed run goes on from it.")]
Seed = Annotated[int, typer.Option(help="Every random choice follows from it.", min=0)]


@app.callback()
def _influence() -> None:
    """Choose fine-tuning examples by what training on them does to the loss of a few target examples.

    Under `accelerate launch` or `torchrun` the work is shared between the processes.
    """


@app.command()
def select(
    model: Model,
    train: Train,
    target: Target,
    k: Annotated[int, typer.Option("-k", "--k", help="How many examples to choose.", min=1)],
    out: Annotated[Path, typer.Option(help="JSONL of the chosen rows, with influence_index, _score and _weight.")],
    optimizer_state: State = None,
    params: Params = "mlp-out",
    mask_numel: Annotated[int | None, typer.Option(help="Coordinates of the gradient that are kept.")] = None,
    grad_dim: Annotated[int, typer.Option(help="Numbers in a projected gradient.", min=1)] = 32768,
    num_landmarks: Landmarks = 4096,
    num_blocks: Blocks = 4,
    num_tangents: Tangents = 2,
    mode: Annotated[str, typer.Option(help="forward_ad, or finite_difference (quantised or fused).")] = "forward_ad",
    aggregate: Annotated[str, typer.Option(help="round_robin (targets take turns) or mean.")] = "round_robin",
    group_field: Annotated[str | None, typer.Option(help="Field of a target row that names its task.")] = None,
    order: Annotated[int, typer.Option(help="1, or 2 to weigh how examples act together.", min=1, max=2)] = 1,
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Equal examples count once.")] = False,
    method: Annotated[str, typer.Option(help="influence, exact, rds+, mid-perplexity or random.")] = "influence",
    warmup_steps: Annotated[int, typer.Option(help="Steps of the warm-up.", min=1)] = 20,
    lr: Annotated[float, typer.Option(help="Learning rate of the warm-up.")] = 2e-5,
    max_length: Length = 2048,
    batch_size: Batch = 8,
    store: Store = None,
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the output.")] = False,
) -> None:
    """Write the k examples of a pool that would lower the loss of the target most; the cost is printed first."""
    if out.exists() and not force:
        raise FileExistsError(f"--out: {out} already exists; choose another path, or use --force to replace it")
    if method not in {"influence", "exact", "rds+", "mid-perplexity", "random"}:
        raise ValueError(f"--method: expected influence, exact, rds+, mid-perplexity or random, got {method!r}")
    from thrifty.data.influence.embeddings import JVPEmbedding
    from thrifty.data.influence.texts import read_rows

    rows, aims = read_rows(train), read_rows(target)
    if k > len(rows):
        raise ValueError(f"-k: {train} has {len(rows)} examples, got {k}")
    groups = None
    if group_field is not None:
        if missing := [i for i, row in enumerate(aims) if group_field not in row]:
            raise ValueError(f"--group-field: row {missing[0]} of {target} has no field {group_field!r}")
        groups = [str(row[group_field]) for row in aims]
    embedding = JVPEmbedding(num_blocks=num_blocks, num_tangents=num_tangents, mode=mode)  # type: ignore[arg-type]
    job = _Job(model, rows, aims, max_length, batch_size, seed)
    job.announce(
        num_landmarks if method == "influence" else len(rows), num_blocks, num_tangents, mode, grad_dim, method
    )
    if method in {"influence", "exact"}:
        picker = job.picker(
            optimizer_state, warmup_steps, lr, params=params, mask_numel=mask_numel, grad_dim=grad_dim,
            num_landmarks=min(num_landmarks, len(rows)) if method == "influence" else len(rows), order=order,
            embedding=embedding, store=store,
        )  # fmt: skip
        result = picker.select(
            job.pool, job.target, k, aggregate="mean" if order == 2 else aggregate, groups=groups,
            deduplicate=deduplicate,
        )  # fmt: skip
    else:
        result = job.rival(method, k)
    if job.is_main():
        lines = [
            json.dumps(
                {**rows[i], "influence_index": int(i), "influence_score": float(s), "influence_weight": float(w)}
            )
            for i, s, w in zip(result.indices, result.scores, result.weights, strict=True)
        ]
        write_whole(out, "\n".join(lines) + "\n", force=force)
        _say(_summary(result.report))
        typer.echo(f"{len(lines)} of {len(rows)} examples: {out}")


@app.command()
def report(
    model: Model,
    train: Train,
    target: Target,
    optimizer_state: State = None,
    params: Params = "mlp-out",
    num_landmarks: Landmarks = 256,
    num_check: Annotated[int, typer.Option(help="Extra examples that the propagation is held against.", min=0)] = 32,
    num_blocks: Blocks = 4,
    num_tangents: Tangents = 2,
    warmup_steps: Annotated[int, typer.Option(help="Steps of the warm-up.", min=1)] = 20,
    lr: Annotated[float, typer.Option(help="Learning rate of the warm-up.")] = 2e-5,
    max_length: Length = 2048,
    batch_size: Batch = 8,
    store: Store = None,
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether propagated scores can be trusted on this pool, and what a selection would cost."""
    from thrifty.data.influence.embeddings import JVPEmbedding
    from thrifty.data.influence.texts import read_rows

    job = _Job(model, read_rows(train), read_rows(target), max_length, batch_size, seed)
    cost = job.announce(num_landmarks + num_check, num_blocks, num_tangents, "forward_ad", 32768, "influence")
    embedding = JVPEmbedding(num_blocks=num_blocks, num_tangents=num_tangents)
    picker = job.picker(
        optimizer_state, warmup_steps, lr, params=params, num_landmarks=min(num_landmarks, len(job.pool)),
        num_check=num_check, embedding=embedding, store=store,
    )  # fmt: skip
    scored = picker.score(job.pool, job.target)
    quality = scored.report
    found = {
        "correlation": quality.correlation, "r2": quality.r2, "examples": quality.examples, "how": quality.how,
        "verdict": quality.verdict, "excluded": len(scored.excluded), "backward_passes": scored.backward_passes,
        "cost": cost,
    }  # fmt: skip
    if job.is_main():
        typer.echo(json.dumps(found) if as_json else f"propagation is {quality.verdict} ({quality.how})")


class _Job:
    """One command's model and data, in this process."""

    def __init__(self, model: Path, rows: list[Any], aims: list[Any], length: int, batch: int, seed: int) -> None:
        from thrifty._common.extras import require
        from thrifty.data.influence.texts import tokenize_examples

        if not model.is_dir():
            raise FileNotFoundError(f"--model: expected the folder of a local model, got {model}")
        transformers = require("transformers", extra="llm")
        transformers.utils.logging.disable_progress_bar()
        self._folder, self._batch, self._seed = model, batch, seed
        self._join()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, local_files_only=True).eval()
        self.model.to(self._device())
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, local_files_only=True)
        self.pool = tokenize_examples(rows, tokenizer, max_length=length)
        self.target = tokenize_examples(aims, tokenizer, max_length=length)

    def announce(
        self, landmarks: int, blocks: int, tangents: int, mode: str, grad_dim: int, method: str
    ) -> dict[str, float]:
        """Print what the run will cost, before it begins."""
        from thrifty.data.influence import cost

        N = sum(p.numel() for p in self.model.parameters())
        n, m = len(self.pool), len(self.target)
        tokens = sum(len(row["input_ids"]) for row in self.pool) / n
        layers = int(getattr(self.model.config, "num_hidden_layers", blocks))
        exact = cost.exact_flops(N, n + m) * tokens
        if method == "influence" and landmarks < n:
            spent = tokens * cost.influence_flops(
                N,
                n,
                landmarks + m,
                layers=layers,
                blocks=min(blocks, layers),
                tangents=tangents,
                count=mode,  # type: ignore[arg-type]
            )
            passes = landmarks + m
        else:
            share = {"random": 0.0, "rds+": 1 / 3, "mid-perplexity": 1 / 3}.get(method, 1.0)
            spent, passes = share * exact, 0 if method in {"random", "rds+", "mid-perplexity"} else n + m
        stored = cost.store_bytes(n, min(landmarks, n), m, gradient=grad_dim)
        found = {"flops": spent, "flops_exact": exact, "backward_passes": passes, "store_bytes": sum(stored.values())}
        if self.is_main():
            _say(
                f"{n} examples of {tokens:.0f} tokens, {m} targets: about {spent:.2g} FLOPs "
                f"({spent / exact:.0%} of exact gradients), {passes} backward passes instead of {n + m}, "
                f"at most {found['store_bytes'] / 1e6:.1f} MB of rows"
            )
        return found

    def picker(self, state: Path | None, steps: int, lr: float, *, params: str, **settings: Any) -> Any:
        """Build the selector, with a saved optimizer state or after a warm-up."""
        from thrifty.data.influence.selector import InfluenceDistillation
        from thrifty.data.influence.warmup import load_trainer_optimizer, warm_up

        if state is not None:
            model, optimizer = self.model, load_trainer_optimizer(state, self.model)
        else:
            start = warm_up(self.model, self.pool, steps=steps, lr=lr, batch_size=self._batch, seed=self._seed)
            model, optimizer = start.model, start.optimizer
        return InfluenceDistillation(
            model, optimizer, params=None if params == "all" else params, batch_size=self._batch, seed=self._seed,
            progress=_progress(self.is_main()), **settings,
        )  # fmt: skip

    def rival(self, method: str, k: int) -> Any:
        """Choose by another method."""
        from thrifty.data.influence import rivals

        if method == "random":
            return rivals.random_selection(self.pool, k, seed=self._seed)
        if method == "rds+":
            return rivals.rds_plus_selection(self.model, self.pool, self.target, k, batch_size=self._batch)
        return rivals.mid_perplexity_selection(self.model, self.pool, k, batch_size=self._batch)

    def is_main(self) -> bool:
        """Tell whether this process is the one that writes."""
        from thrifty.data.influence.sharding import Shard

        return Shard.current().rank == 0

    def _join(self) -> None:
        """Join the processes of ``torchrun`` or ``accelerate launch``."""
        import os

        from torch import cuda
        from torch import distributed as dist

        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if cuda.is_available() else "gloo")

    def _device(self) -> str:
        import os

        from torch import cuda

        return f"cuda:{int(os.environ.get('LOCAL_RANK', '0'))}" if cuda.is_available() else "cpu"


def _progress(shown: bool) -> Callable[[int, int, str], object] | None:
    """Say on standard error how far each stage is, once every tenth."""
    if not shown:
        return None
    last: dict[str, int] = {}

    def tell(done: int, total: int, what: str) -> None:
        tenth = 10 * done // max(total, 1)
        if last.get(what) != tenth:
            last[what] = tenth
            _say(f"{what}: {10 * tenth} %")

    return tell


def _summary(report: dict[str, Any]) -> str:
    if "propagation" not in report:
        return "no gradients were used"
    return f"{report['backward_passes']} backward passes; propagation is {report['propagation']['verdict']}" + (
        f"; {report['excluded']} examples without a label token left out" if report["excluded"] else ""
    )


def _say(text: str) -> None:
    typer.echo(text, err=True)
