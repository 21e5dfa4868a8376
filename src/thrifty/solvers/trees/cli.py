"""``thrifty trees``: local search on decision trees from a shell, on a user's own tables."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from thrifty._common.files import refuse_existing
from thrifty._common.options import Force, Json, Seed
from thrifty.solvers.trees.shell import inputs as given
from thrifty.solvers.trees.shell.inputs import at_work, read_inputs, remark

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Data = Annotated[Path, typer.Option("--data", help="Training table: CSV with a header line, or Parquet.")]
Target = Annotated[str, typer.Option("--target", help="The column that holds the classes.")]
Weight = Annotated[str | None, typer.Option("--weight", help="A column of row weights; it is no feature then.")]
TreeFile = Annotated[Path | None, typer.Option("--tree", help="The tree, as JSON that `fit` or `improve` wrote.")]
WekaFile = Annotated[Path | None, typer.Option("--weka", help="In place of --tree: what WEKA's J48 printed.")]
Operation = Annotated[
    str,
    typer.Option(help="**adjust**: a change moves a cut's threshold. **exchange**: it may test another column, too."),
]
Budget = Annotated[int, typer.Option("--k", help="Cuts that may change.")]


@app.callback()
def _trees() -> None:
    """Fewer training errors from a decision tree of the same size: the best change of at most k cuts, proven.

    `fit` makes a first tree, `improve` changes it, `diff` says how two trees differ, `show` prints one. `report` says
    how hard a search would be, `table` what errors are left for each mix of changes and pruning.

    Tables are CSV or Parquet. Columns are matched by name; a column of text becomes one 0/1 column a value, named
    `column=value`.
    """


@app.command()
def fit(
    data: Data,
    target: Target,
    out: Annotated[Path, typer.Option(help="Where to write the tree, as JSON.")],
    max_depth: Annotated[int | None, typer.Option(help="Cuts on the way from the root to a leaf, at most.")] = None,
    max_leaves: Annotated[int | None, typer.Option(help="Leaves, at most.")] = None,
    min_samples_leaf: Annotated[int, typer.Option(help="Rows in a leaf, at least.")] = 1,
    ccp_alpha: Annotated[float, typer.Option(help="Pruning: the higher, the smaller the tree.")] = 0.0,
    ignore: Annotated[list[str] | None, typer.Option(help="A column to leave out (an id, say); repeatable.")] = None,
    weight: Weight = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Grow a first tree (scikit-learn's CART).

    Example: `thrifty trees fit --data flowers.csv --target species --max-depth 3 --out tree.json`
    """
    from sklearn.tree import DecisionTreeClassifier

    from thrifty._common.tables import one_hot
    from thrifty.solvers.trees.model.outline import outline
    from thrifty.solvers.trees.model.tree import Tree

    refuse_existing(out, force)
    columns, y, weights = given.read_training_table(data, target, weight)
    if unknown := [name for name in ignore or () if name not in columns]:
        raise ValueError(f"--ignore: expected columns among {', '.join(columns)}, got {unknown[0]!r}")
    X, names = one_hot({name: column for name, column in columns.items() if name not in (ignore or ())})
    with at_work("growing ..."):
        grown = DecisionTreeClassifier(
            max_depth=max_depth,
            max_leaf_nodes=max_leaves,
            min_samples_leaf=min_samples_leaf,
            ccp_alpha=ccp_alpha,
            random_state=seed,
        ).fit(X, y, sample_weight=weights)
    tree = replace(Tree.from_sklearn(grown), feature_names=names)
    tree.save(out, force=force)
    typer.echo(outline(tree))
    remark(f"{tree.n_cuts} cuts, {(tree.predict(X) != y).sum()} rows misclassified; written to {out}")


@app.command()
def improve(
    data: Data,
    target: Target,
    tree: TreeFile = None,
    weka: WekaFile = None,
    operation: Operation = "exchange",
    k: Budget = 1,
    mode: Annotated[
        str,
        typer.Option(
            help="**exact**: best k changes. **hillclimb**: single changes until none helps. **vns**: then up to k."
        ),
    ] = "exact",
    solver: Annotated[str, typer.Option(help="Which exact solver; auto chooses.")] = "auto",
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then the best tree so far is taken.")] = None,
    min_samples_leaf: Annotated[int, typer.Option(help="Rows that a change must leave in each leaf.")] = 1,
    feature: Annotated[list[str] | None, typer.Option(help="A column that cuts may go to; repeatable.")] = None,
    freeze: Annotated[list[int] | None, typer.Option(help="A cut that stays, by node number; repeatable.")] = None,
    monotonic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=+1|-1",
            help="Raising the column must never lower (+1) or raise (-1) the class, in sorted order; repeatable.",
        ),
    ] = None,
    weight: Weight = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the new tree; none: it is only reported.")] = None,
    report: Annotated[bool, typer.Option("--report", help="Also print what `report` prints.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Change at most k cuts of a tree so that it makes the fewest errors on the table.

    Training errors never rise; errors on new rows may. With few rows, hold some back and compare.

    Example: `thrifty trees improve --tree tree.json --data flowers.csv --target species --k 2 --out better.json`
    """
    from thrifty.solvers.trees.improve import improve_tree
    from thrifty.solvers.trees.instance.parameters import instance_parameters

    refuse_existing(out, force)
    found = read_inputs(tree, weka, data, target, weight)
    with at_work("searching ..."):
        better, outcome = improve_tree(
            found.tree,
            found.X,
            found.y,
            operation=operation,  # type: ignore[arg-type]
            k=k,
            mode=mode,  # type: ignore[arg-type]
            solver=solver,  # type: ignore[arg-type]
            sample_weight=found.weight,
            min_samples_leaf=min_samples_leaf,
            features=feature or None,
            frozen=freeze or (),
            monotonic_cst=given.monotonic_cst(found.tree, monotonic or ()),
            time_limit=time_limit,
            random_state=seed,
        )
    with at_work("measuring ..."):
        instance = instance_parameters(
            found.tree,
            found.X,
            found.y,
            operation=operation,  # type: ignore[arg-type]
            k=min(k, found.tree.n_cuts),
            sample_weight=found.weight,
        )
    if out is not None:
        better.save(out, force=force)
    if as_json:
        document = {**asdict(outcome), "difference": outcome.difference.to_dict(), "parameters": instance.to_dict()}
        typer.echo(json.dumps(document))
    else:
        budgets = ", ".join(f"{errors:g}" for errors in outcome.errors_by_budget)
        typer.echo(outcome.summary())
        typer.echo(outcome.difference)
        typer.echo(f"fewest errors with at most 0, 1, ... changes: {budgets}; lower bound: {outcome.lower_bound:g}")
        if report:
            typer.echo(instance.describe())
    if out is not None:
        remark(f"written to {out}")


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="The tree as it was (JSON).")],
    after: Annotated[Path, typer.Argument(help="The tree as it is (JSON).")],
    data: Annotated[Path | None, typer.Option(help="A table, to say what errors each change saves.")] = None,
    target: Annotated[str | None, typer.Option(help="The column that holds the classes.")] = None,
    as_json: Json = False,
) -> None:
    """Say in words what turns one tree into another: tests changed, subtrees pruned or raised.

    Example: `thrifty trees diff tree.json better.json --data flowers.csv --target species`
    """
    from thrifty.solvers.trees.model.tree import Tree
    from thrifty.solvers.trees.model.wording import describe_difference

    if (data is None) != (target is None):
        raise ValueError(
            "--data, --target: expected both (the table, and the column that holds its classes) or none, got one"
        )
    old, new = Tree.load(before), Tree.load(after)
    if data is None or target is None:
        difference = describe_difference(old, new)
    else:
        found = read_inputs(before, None, data, target, None)
        difference = describe_difference(old, new, found.X, found.y)
    typer.echo(json.dumps(difference.to_dict()) if as_json else difference)


@app.command()
def show(
    tree: Annotated[Path, typer.Argument(help="The tree (JSON, or WEKA's text with --weka).")],
    weka: Annotated[bool, typer.Option("--weka", help="The file is what WEKA's J48 printed.")] = False,
) -> None:
    """Print a tree with its node numbers, by which `improve --freeze` and all reports name cuts.

    Example: `thrifty trees show tree.json`
    """
    from thrifty.solvers.trees.model.outline import outline
    from thrifty.solvers.trees.model.tree import Tree
    from thrifty.solvers.trees.model.weka import tree_from_weka

    typer.echo(outline(tree_from_weka(given.read_weka(tree)) if weka else Tree.load(tree)))


@app.command()
def report(
    data: Data,
    target: Target,
    tree: TreeFile = None,
    weka: WekaFile = None,
    operation: Operation = "exchange",
    k: Budget = 1,
    weight: Weight = None,
    delta_max: Annotated[
        bool, typer.Option("--delta-max", help="Also in how many columns rows of two classes differ; slow.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure how hard a search would be, in the paper's parameters, and say which solver fits.

    Example: `thrifty trees report --tree tree.json --data flowers.csv --target species --k 3`
    """
    from thrifty.solvers.trees.instance.parameters import instance_parameters

    found = read_inputs(tree, weka, data, target, weight)
    with at_work("measuring ..."):
        instance = instance_parameters(
            found.tree,
            found.X,
            found.y,
            operation=operation,  # type: ignore[arg-type]
            k=k,
            sample_weight=found.weight,
            delta_max=delta_max,
        )
    typer.echo(json.dumps(instance.to_dict()) if as_json else instance.describe())


@app.command()
def table(
    data: Data,
    target: Target,
    tree: TreeFile = None,
    weka: WekaFile = None,
    k_adjust: Annotated[int, typer.Option("--adjust", help="Cuts whose threshold may move, at most.")] = 1,
    k_exchange: Annotated[int, typer.Option("--exchange", help="Cuts that may get another test, at most.")] = 0,
    n_prune: Annotated[int, typer.Option("--prune", help="Cuts removed by replacing subtrees with leaves.")] = 0,
    n_raise: Annotated[int, typer.Option("--raise", help="Cuts removed by raising subtrees.")] = 0,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then only lower bounds are printed.")] = None,
    min_samples_leaf: Annotated[int, typer.Option(help="Rows that a change must leave in each leaf.")] = 1,
    weight: Weight = None,
    entry: Annotated[
        str | None, typer.Option(help="Which tree to write to --out: adjusted,exchanged,pruned,raised.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the tree of --entry, as JSON.")] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Print the fewest errors for each number of changed cuts and of removed cuts.

    Changes count as *at most*, removed cuts as *exactly*: the table shows what each size costs.

    Example: `thrifty trees table --tree tree.json --data flowers.csv --target species --adjust 2 --prune 3`,
    and the tree with one change and two cuts less: `... --entry 1,0,2,0 --out smaller.json`
    """
    from thrifty.solvers.trees.boxes.error_table import error_table
    from thrifty.solvers.trees.shell.table_text import parse_entry, table_text, table_to_dict

    refuse_existing(out, force)
    if (entry is None) != (out is None):
        raise ValueError(
            "--entry, --out: expected both (which tree of the table, and where to write it) or none, got one"
        )
    index = None if entry is None else parse_entry(entry, (k_adjust, k_exchange, n_prune, n_raise))
    found = read_inputs(tree, weka, data, target, weight)
    with at_work("filling the table ..."):
        errors = error_table(
            found.tree,
            found.X,
            found.y,
            k_adjust=k_adjust,
            k_exchange=k_exchange,
            n_prune=n_prune,
            n_raise=n_raise,
            sample_weight=found.weight,
            min_samples_leaf=min_samples_leaf,
            time_limit=time_limit,
        )
    if index is not None and out is not None:
        errors.tree(index).tree.save(out, force=force)
        remark(f"written to {out}")
    typer.echo(json.dumps(table_to_dict(errors)) if as_json else table_text(errors))
