"""``thrifty games``: equilibria of games with very many actions, from a shell, on a user's own games."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from thrifty._common.files import refuse_existing
from thrifty._common.options import Force, Json, Seed

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Result = Annotated[Path, typer.Argument(help="What `solve --out` wrote.")]


@app.callback()
def _games() -> None:
    """Coarse correlated equilibria of games whose actions are too many to list, from payoffs alone.

    `solve` lets all players learn without regret and certifies the average of their play, `gap` evaluates the
    certificate again from what was played, `show` says what each player does, and draws it.

    A game is a JSON file (`{"game": "blotto", "soldiers": [10, 10], "values": [1, 2, 3, 4]}`; the card says what other
    games look like), or `--soldiers` and `--values`, or a table of edges with `--od` (routes) or `--players` (trees).
    """


@app.command()
def solve(
    game: Annotated[Path | None, typer.Argument(help="A game as JSON.")] = None,
    soldiers: Annotated[str | None, typer.Option(help="Blotto: soldiers of each player, as 10,10.")] = None,
    values: Annotated[str | None, typer.Option(help="Blotto: value of each battlefield, as 1,2,3,4.")] = None,
    tie: Annotated[str, typer.Option(help="Blotto: what who shares the first place wins: half, share, lose.")] = "half",
    contest: Annotated[str, typer.Option(help="Blotto: all-pay (most soldiers win), or ratio.")] = "all-pay",
    edges: Annotated[
        Path | None, typer.Option(help="A table of edges: tail, head, and attributes (weight, or those of --cost bpr).")
    ] = None,
    od: Annotated[
        str | None, typer.Option("--od", help="Routes: origin:destination of each player, as a:c,b:c.")
    ] = None,
    players: Annotated[int | None, typer.Option(help="Spanning trees: how many players build one.", min=1)] = None,
    cost: Annotated[
        str, typer.Option(help="Of an edge: linear (weight times load), or bpr (free_flow_time, capacity, b, power).")
    ] = "linear",
    orient: Annotated[
        bool, typer.Option("--orient", help="Routes: only edges that lead nearer to the destination, by weight.")
    ] = False,
    feedback: Annotated[
        str,
        typer.Option(
            help="**full**, **semi-bandit**, **bandit**, or **expected** (nobody draws); one each: full,bandit."
        ),
    ] = "semi-bandit",
    horizon: Annotated[int | None, typer.Option(help="Rounds; none: until --eps or --time-limit.", min=1)] = None,
    eps: Annotated[float | None, typer.Option(help="Stop where the gap is at most this.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Rounds between evaluations of the gap.", min=1)] = None,
    eta: Annotated[str, typer.Option(help="Step size: practical, theory, or a number.")] = "practical",
    eta_scale: Annotated[float, typer.Option(help="Multiplies the step size.")] = 1.0,
    gamma: Annotated[float | None, typer.Option(help="Exploration; none: as --eta has it.")] = None,
    exploration: Annotated[str, typer.Option(help="Of bandit feedback: spanner or uniform.")] = "spanner",
    noise: Annotated[float, typer.Option(help="Share of each loss shown that is a coin of the same mean.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Where to keep the run (npz); also its checkpoint.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    save_every: Annotated[float, typer.Option(help="Seconds between checkpoints.", min=0.0)] = 60.0,
    seed: Seed = 0,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Play a game until its horizon, a gap, or a time limit, and print the certificate.

    Example: `thrifty games solve --soldiers 10,10 --values 1,2,3,4 --horizon 20000 --out run.npz`
    """
    from thrifty.solvers.games.play import solve_cce
    from thrifty.solvers.games.wording import facts_of, summary

    if resume and (out is None or not out.exists()):
        raise ValueError(f"--resume: expected --out to be a run that is there, got {out}")
    if out is not None and not resume:
        refuse_existing(out, force)
        if force:
            refuse_folder(out)
    made = _game(game, soldiers, values, tie, contest, edges, od, players, cost, orient)
    kinds = feedback.split(",") if "," in feedback else feedback
    if out is not None and not resume:
        out.unlink(missing_ok=True)
    try:
        result = solve_cce(
            made, kinds, horizon, eps=eps, time_limit=time_limit, seed=seed, eval_every=eval_every, eta=_step(eta),
            gamma=gamma, eta_scale=eta_scale, exploration=exploration, noise=noise, checkpoint=out,
            save_every=save_every,
            progress=lambda rounds, gap, seconds: typer.echo(
                f"round {rounds}: gap {gap:.5g}, {seconds:.1f} s", err=True
            ),
        )  # fmt: skip
    except ArithmeticError as error:
        raise ValueError(f"--eta, --eta-scale: {error}; smaller steps would do") from None
    typer.echo(json.dumps(facts_of(result)) if as_json else summary(result))
    if out is not None:
        typer.echo(f"written to {out}; `thrifty games show {out}` says what is played", err=True)


@app.command()
def gap(result: Result, as_json: Json = False) -> None:
    """Evaluate the certificate again, from every joint action in the file (or from its sums, where none are kept).

    Example: `thrifty games gap run.npz`
    """
    from thrifty.solvers.games.certificate import cce_gaps
    from thrifty.solvers.games.result import CCEResult

    found = CCEResult.load(result)
    played = found.drawn and found.history is not None
    gaps = cce_gaps(found.game, list(found.plays())) if played else found.gaps
    facts = {"gap": max(0.0, float(gaps.max())), "gaps": gaps.tolist(), "rounds": found.rounds, "from_plays": played}
    if as_json:
        typer.echo(json.dumps(facts))
        return
    typer.echo(f"gap {facts['gap']:.6g} over {found.rounds} {'plays' if played else 'rounds of laws'}")
    for i, one in enumerate(gaps):
        typer.echo(f"player {i}: {one:.6g}")


@app.command()
def show(
    result: Result,
    top: Annotated[int, typer.Option(help="Actions of each player.", min=1)] = 10,
    trace: Annotated[Path | None, typer.Option(help="Draw how the gap fell (svg or png).")] = None,
    draw: Annotated[Path | None, typer.Option(help="Draw battlefields or the network (svg or png).")] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Print what each player does: its most frequent actions, and where its average law puts weight.

    Example: `thrifty games show run.npz --top 5 --trace gap.svg --draw network.svg`
    """
    from thrifty.solvers.games.figures import plot_strategies, plot_trace
    from thrifty.solvers.games.result import CCEResult
    from thrifty.solvers.games.wording import facts_of, strategies, summary

    for path in (trace, draw):
        refuse_existing(path, force)
    found = CCEResult.load(result)
    typer.echo(json.dumps(facts_of(found, top)) if as_json else f"{summary(found)}\n\n{strategies(found, top)}")
    if trace is not None:
        typer.echo(f"drawn: {plot_trace(found, trace, force=force)}", err=True)
    if draw is not None:
        typer.echo(f"drawn: {plot_strategies(found, draw, force=force)}", err=True)


def refuse_folder(path: Path) -> None:
    """Refuse to replace what is no file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, got a folder")


def _game(
    path: Path | None, soldiers: str | None, values: str | None, tie: str, contest: str, edges: Path | None,
    od: str | None, players: int | None, cost: str, orient: bool,
) -> Any:  # fmt: skip
    """Return the game of one of the three ways to say it."""
    from thrifty.solvers.games.descriptions import game_from, read_edges, read_game

    ways = [path is not None, soldiers is not None or values is not None, edges is not None]
    if sum(ways) != 1:
        raise ValueError("game: expected one of a JSON file, --soldiers with --values, or --edges")
    if path is not None:
        return read_game(path)
    if edges is None:
        if soldiers is None or values is None:
            raise ValueError("--soldiers, --values: expected both, got one")
        told = {"soldiers": _numbers("--soldiers", soldiers, int), "values": _numbers("--values", values, float)}
        return game_from({"game": "blotto", "tie": tie, "contest": contest, **told})
    if (od is None) == (players is None):
        raise ValueError("--od, --players: expected one of them (routes or spanning trees), got both or none")
    read = {"edges": read_edges(edges), "cost": cost}
    if od is None:
        return game_from({"game": "trees", "players": players, **read})
    known = {str(name): name for edge in read["edges"] for name in edge[:2]}
    pairs = [[known.get(name, name) for name in pair.split(":")] for pair in od.split(",")]
    return game_from({"game": "network", "od_pairs": pairs, "orient": orient, **read})


def _numbers(name: str, text: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name}: expected numbers with commas between them, got {text!r}") from None


def _step(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
