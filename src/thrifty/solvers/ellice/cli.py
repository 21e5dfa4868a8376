"""``thrifty ellice``: recourse from tables in files.

Models come as skops files, whose types are checked against a fixed list before anything is loaded; without one, a
logistic regression is fitted to the training table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from thrifty._common.extras import require
from thrifty._common.files import refuse_existing, write_whole
from thrifty._common.options import Device, Force, Json, Seed
from thrifty._common.runs import device_of, world
from thrifty._common.tables import read_table
from thrifty.solvers.ellice.inputs import label_of, limits_of, model_of, persons_like, training_table

app = typer.Typer(no_args_is_help=True, add_completion=False)

Data = Annotated[Path, typer.Option(help="Training table: CSV with a header line, or Parquet.", exists=True)]
Target = Annotated[str, typer.Option("--target", help="The column of the training table that holds the labels.")]
Queries = Annotated[Path, typer.Option("--query", help="Table of persons.", exists=True)]
ModelFile = Annotated[
    Path | None,
    typer.Option("--model", help="Fitted model as a skops file; none: fit a logistic regression.", exists=True),
]
Epsilon = Annotated[
    float,
    typer.Option(
        help="By how much a model's mean loss may be worse and its verdict still count; see tune.",
        min=0.0,
    ),
]
Label = Annotated[
    str | None,
    typer.Option("--desired", help="The wanted label, or opposite: each person's other one; none: the last, sorted."),
]
Immutable = Annotated[str, typer.Option(help="Features that may not change, separated by commas.")]
Limits = Annotated[
    Path | None,
    typer.Option(
        "--constraints",
        help='Constraints as a JSON file, such as {"one_way": {"income": "increase"}, "permitted_range": {"debt": [0, '
        "3000]}}; also features_to_vary, allowed_values, integer, one_hot_groups, feature_weights, linear.",
        exists=True,
    ),
]
Method = Annotated[str, typer.Option(help="auto; exact (linear models), gradient (networks), data (rows of --data).")]
L2 = Annotated[float, typer.Option("--l2", help="Penalty of the objective: 1 / (C n) of the model's fit.", min=0.0)]


@app.callback()
def _ellice() -> None:
    """Find recourse that stays valid when the model is retrained."""


@app.command()
def explain(
    data: Data,
    target: Target,
    query: Queries,
    out: Annotated[Path, typer.Option(help="Where the answers go: .csv, .parquet or .json (a report).")],
    model: ModelFile = None,
    epsilon: Epsilon = 0.01,
    desired: Label = None,
    immutable: Immutable = "",
    constraints: Limits = None,
    method: Method = "auto",
    distance: Annotated[str, typer.Option(help="l2, l1, mixed, or sparse (for --method data).")] = "l2",
    sparsity: Annotated[str | None, typer.Option(help="The most features that may change, or min.")] = None,
    per_person: Annotated[int, typer.Option("--total-cfs", help="Answers a person.", min=1)] = 1,
    certify: Annotated[
        str, typer.Option(help="ellipsoid, or rashomon: the true set of near-optimal models too (linear ones).")
    ] = "ellipsoid",
    threshold: Annotated[float, typer.Option(help="Probability of class 1 that decides.")] = 0.5,
    l2: L2 = 1e-3,
    batch: Annotated[int, typer.Option(help="Persons explained in one go.", min=1)] = 4096,
    shard: Annotated[
        str | None, typer.Option(help="i/n: explain only the i-th of n parts of the queries (under torchrun: by rank).")
    ] = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="Print one sentence a person.")] = False,
    device: Device = "cpu",
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Find, for each person of a table, the nearest change that every near-optimal model accepts.

    thrifty ellice explain --data train.csv --target decision --query q.csv --immutable age,sex --out cf.csv

    Answers come as the person's columns, changed, and columns cf_...: cf_query (the row of --query, from 0), cf_status
    (already_valid, optimal, feasible, infeasible, not_found, no_candidate), cf_changed, cf_distance, cf_radius (the
    largest epsilon that the answer bears). Who has no answer has empty cells.
    """
    pd = require("pandas", extra="tabular")
    part, parts = _shard(shard)
    if parts > 1:
        out = out.with_name(f"{out.stem}.{part}-of-{parts}{out.suffix}")
    kind = out.suffix.lower()
    if kind not in (".csv", ".parquet", ".json"):
        raise ValueError(f"--out: expected a name that ends in .csv, .parquet or .json, got {str(out)!r}")
    refuse_existing(out, force)
    frame, labels = training_table(data, target)
    explainer = _explainer(
        frame, labels, model, l2, epsilon, desired, immutable, constraints,
        method=method, distance=distance, sparsity=_sparsity(sparsity), n_counterfactuals=per_person,
        threshold=threshold, certify=certify, random_state=seed, device=device,
    )  # fmt: skip
    persons = persons_like(pd.DataFrame(read_table(query)), frame)
    explainer.reading_.encoding.frame(persons, "--query")  # refused by the name that it has here
    persons = persons.iloc[part::parts]
    results = []
    for at in range(0, max(1, len(persons)), batch):
        results.append(explainer.explain(persons.iloc[at : at + batch]))
        sys.stderr.write(f"{min(len(persons), at + batch)} of {len(persons)} persons\n")
    if kind == ".json":
        reports = [json.loads(result.to_json()) for result in results]
        for start, report in zip(range(0, max(1, len(persons)), batch), reports, strict=True):
            for answer in report["answers"]:
                answer["query"] = (answer["query"] + start) * parts + part
        whole = {**reports[0], "seconds": sum(report["seconds"] for report in reports)}
        whole["answers"] = [answer for report in reports for answer in report["answers"]]
        write_whole(out, json.dumps(whole, indent=1), force=force)
    else:
        frames = [result.to_frame() for result in results]
        for start, one in zip(range(0, max(1, len(persons)), batch), frames, strict=True):
            one["cf_query"] = (one["cf_query"] + start) * parts + part
        table = pd.concat(frames, ignore_index=True)
        write_whole(out, table.to_parquet() if kind == ".parquet" else table.to_csv(index=False), force=force)
    counts: dict[str, int] = {}
    for result in results:
        for status, count in result.statuses.items():
            counts[status] = counts.get(status, 0) + count
        if sentences:
            for sentence in result.sentences():
                typer.echo(sentence)
    typer.echo(f"{out}: " + (", ".join(f"{count} {status}" for status, count in counts.items()) or "nobody"))


@app.command()
def evaluate(
    data: Data,
    target: Target,
    query: Queries,
    model: ModelFile = None,
    epsilon: Epsilon = 0.01,
    kind: Annotated[
        str, typer.Option(help="bootstrap, subsample, shift, retrain, dropout, awp, sample, ellipsoid or rashomon.")
    ] = "bootstrap",
    epsilon_target: Annotated[
        float | None, typer.Option(help="Keep models within this of the objective; none: --epsilon, or all retrained.")
    ] = None,
    n_models: Annotated[int, typer.Option(help="Models to hold answers against.", min=1)] = 50,
    desired: Label = None,
    immutable: Immutable = "",
    constraints: Limits = None,
    method: Method = "auto",
    l2: L2 = 1e-3,
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find recourse, and tell how much of it other models of about the same quality accept.

    thrifty ellice evaluate --data train.csv --target decision --query q.csv --kind bootstrap

    Printed are coverage (share of persons with an answer), robustness (share of persons whose answer every model
    accepts), agreement (mean share of models that accept an answer), l0 (changed columns), l1, l2, distance, outlier
    (local outlier factor; 1 is ordinary).
    """
    from thrifty.solvers.ellice.ensembles import make_ensemble
    from thrifty.solvers.ellice.evaluation import evaluate_recourse

    pd = require("pandas", extra="tabular")
    frame, labels = training_table(data, target)
    explainer = _explainer(
        frame, labels, model, l2, epsilon, desired, immutable, constraints,
        method=method, random_state=seed, device=device,
    )  # fmt: skip
    persons = persons_like(pd.DataFrame(read_table(query)), frame)
    explainer.reading_.encoding.frame(persons, "--query")
    result = explainer.explain(persons)
    retrained = kind in ("bootstrap", "subsample", "shift", "retrain")
    bound = epsilon if epsilon_target is None and not retrained else epsilon_target
    ensemble = make_ensemble(kind, explainer.model, frame, labels, bound, n_models, seed, l2=l2)  # type: ignore[arg-type]
    scores = evaluate_recourse(result, ensemble, explainer).to_dict()
    if as_json:
        typer.echo(json.dumps(scores))
        return
    for name, value in scores.items():
        typer.echo(f"{name:<18} {value:.6g}")


@app.command()
def tune(
    data: Data,
    target: Target,
    model: ModelFile = None,
    robustness: Annotated[float, typer.Option(help="Wanted share of models that accept an answer.")] = 0.95,
    kind: Annotated[str, typer.Option(help="As for evaluate.")] = "bootstrap",
    n_models: Annotated[int, typer.Option(help="Models a fold.", min=1)] = 30,
    folds: Annotated[int, typer.Option(help="Of cross-validation.", min=2)] = 4,
    steps: Annotated[int, typer.Option(help="Bisection steps.", min=1)] = 7,
    desired: Label = None,
    immutable: Immutable = "",
    constraints: Limits = None,
    method: Method = "auto",
    l2: L2 = 1e-3,
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find the smallest epsilon whose recourse survives retraining as often as is wanted.

    thrifty ellice tune --data train.csv --target decision --robustness 0.95
    """
    from thrifty.solvers.ellice.tuning import tune_epsilon

    frame, labels = training_table(data, target)
    fitted = model_of(model, frame, labels, l2)
    tuned = tune_epsilon(
        fitted, frame, labels, robustness=robustness, evaluator=kind, folds=folds, n_models=n_models, steps=steps,  # type: ignore[arg-type]
        random_state=seed, target=label_of(desired, labels), l2=l2, method=method, device=_place(device),
        constraints=limits_of(constraints, immutable),
        progress=lambda done, total: sys.stderr.write(f"{done} of at most {total} tolerances\n"),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"epsilon": tuned.epsilon, "reached": tuned.reached, "trace": tuned.trace}))
        return
    for epsilon, robust, far in tuned.trace:
        typer.echo(f"epsilon {epsilon:.5f}  robustness {robust:.4f}  distance {far:.4g}")
    verdict = "reaches" if tuned.reached else "is the best, but falls short of"
    typer.echo(f"epsilon {tuned.epsilon:.5f} {verdict} {robustness}")


def _explainer(
    frame: Any,
    labels: np.ndarray,
    model: Path | None,
    l2: float,
    epsilon: float,
    desired: str | None,
    immutable: str,
    constraints: Path | None,
    *,
    device: str,
    **settings: Any,
) -> Any:
    from thrifty.solvers.ellice.explainer import ElliCE

    limits = limits_of(constraints, immutable)
    fitted = model_of(model, frame, labels, l2)
    return ElliCE(
        fitted, epsilon=epsilon, l2=l2, target=label_of(desired, labels), constraints=limits, device=_place(device),
        **settings,
    ).fit(frame, labels)  # fmt: skip


def _place(device: str) -> str:
    """Return where networks compute; the CPU, which is all that linear models know, is had without torch."""
    return device if device == "cpu" else device_of(device)


def _sparsity(word: str | None) -> Any:
    if word is None or word == "min":
        return word
    if not word.isdecimal():
        raise ValueError(f"--sparsity: expected a number of features, or min, got {word!r}")
    return int(word)


def _shard(word: str | None) -> tuple[int, int]:
    """Return which part of how many; under torchrun the rank's."""
    if word is None:
        return world()
    part, _, parts = word.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 0 <= int(part) < int(parts)):
        raise ValueError(f"--shard: expected i/n with i from 0 to n-1, got {word!r}")
    return int(part), int(parts)
