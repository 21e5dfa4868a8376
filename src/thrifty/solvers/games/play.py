"""Coarse correlated equilibria by learning without regret: all players learn, and the average of play is certified."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import number, one_of, whole
from thrifty.solvers.games.result import CCEResult
from thrifty.solvers.games.run import Run, learner_of, result_of
from thrifty.solvers.games.saving import go_on_from, save_state

#: What learners may see; ``"expected"``: whole vectors of expected losses, and nobody draws.
FEEDBACK = ("full", "semi-bandit", "bandit", "expected")

#: Told rounds, the gap, and seconds, at every evaluation.
Progress = Callable[[int, float, float], object]


def solve_cce(
    game: Any,
    feedback: str | Sequence[str] = "semi-bandit",
    horizon: int | None = None,
    *,
    eps: float | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    eval_every: int | None = None,
    eta: float | str = "practical",
    gamma: float | None = None,
    eta_scale: float = 1.0,
    exploration: str | ArrayLike = "spanner",
    optimistic: bool | None = None,
    noise: float = 0.0,
    learners: Sequence[Any] | None = None,
    history: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    save_every: float = 60.0,
    progress: Progress | None = None,
    compiled: bool = True,
) -> CCEResult:
    """Let all players learn without regret, and return the average of their play with its exact gap.

    Args:
        game: With ``sets`` and ``loss_vectors``, losses in [0, 1] a coordinate.
        feedback: What learners see: ``"full"`` (the loss of every coordinate), ``"semi-bandit"`` (of those played),
            ``"bandit"`` (their sum); one for all players, or one each. ``"expected"``: nobody draws, and all see the
            losses that the others' laws lead to expect, by which the gap falls like 1 / rounds.
        horizon: Rounds; None: epochs of doubling length, until ``eps`` or ``time_limit``.
        eps: Stop at an evaluation where the gap is at most this.
        time_limit: Seconds after which to stop.
        seed: All players' generators follow from it.
        eval_every: Rounds between evaluations of the gap; None: a hundredth of the horizon, or 500.
        eta: ``"practical"``, ``"theory"``, or a step size.
        gamma: Exploration of bandit and semi-bandit learners; None: as eta is chosen.
        eta_scale: Multiplies step sizes.
        exploration: Of bandit learners; see :class:`KernelizedGeometricHedge`.
        optimistic: Of learners with full feedback; None: where nobody draws.
        noise: What share of every loss that is shown is a coin of the same mean; 0: none, 1: nothing but coins.
        learners: In place of those made here, one a player: ``act``, ``observe``, ``play``, ``feedback``, ``actions``.
        history: Keep what was played; without it nothing can be sampled.
        checkpoint: A file that is written every ``save_every`` seconds, and at the end, also of an interrupted run. If
            it is there, play goes on from it, exactly as if it had not stopped.
        save_every: Seconds between checkpoints.
        progress: Told of every evaluation.
        compiled: Use the compiled loop where there is one; it gives the same numbers.

    Returns:
        The result; :attr:`CCEResult.gap` is its certificate.

    Raises:
        ValueError: An argument is out of range, or the checkpoint is of another game or other settings.
        ArithmeticError: Log weights are no longer finite; the message names the round.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> result = solve_cce(ColonelBlotto([10, 10], [1, 2, 3, 4]), "expected", horizon=1000)
        >>> result.rounds, result.gap < 0.02
        (1000, True)

    Source:
        the paper's theorems on equilibria, with its algorithms 1 and 2; the gap is its definition, evaluated.
    """
    players = len(game.sets)
    kinds = (feedback,) * players if isinstance(feedback, str) else tuple(feedback)
    if learners is not None:
        kinds = tuple(learner.feedback for learner in learners)
    settings = {
        "feedback": list(kinds), "horizon": horizon, "seed": whole("seed", seed, least=0), "eta": eta, "gamma": gamma,
        "eta_scale": eta_scale, "optimistic": optimistic, "noise": noise, "history": bool(history),
        "exploration": exploration if isinstance(exploration, str) else np.asarray(exploration).tolist(),
    }  # fmt: skip
    _check(game, kinds, learners, settings, {"eps": eps, "time_limit": time_limit})
    if learners is None:
        learners = [
            learner_of(kind, actions, players, settings, exploration)
            for kind, actions in zip(kinds, game.sets, strict=True)
        ]
    run = Run(game, kinds, learners, settings, compiled)
    evaluate = whole("eval_every", eval_every) if eval_every is not None else max(1, horizon // 100) if horizon else 500
    wait = number("save_every", save_every, "seconds, a number of at least 0", least=0.0)
    if checkpoint is not None and Path(checkpoint).exists():
        go_on_from(checkpoint, run)
    saved = time.perf_counter()
    ends = np.inf if time_limit is None else saved + time_limit
    state = run.state()
    try:
        while run.round != horizon and not _reached(run, eps) and time.perf_counter() < ends:
            run.go_on(min(evaluate - run.round % evaluate, evaluate if horizon is None else horizon - run.round))
            evaluated = run.round % evaluate == 0 or run.round == horizon
            gap = run.evaluate() if evaluated else 0.0
            if checkpoint is not None:
                state = run.state()  # an interrupt finds a state between rounds
            if evaluated and progress is not None:
                progress(run.round, gap, run.seconds)
            if checkpoint is not None and time.perf_counter() - saved > wait:
                save_state(game, state, checkpoint, force=True)
                saved = time.perf_counter()
    finally:
        if checkpoint is not None and state["round"]:
            save_state(game, state, checkpoint, force=True)
    run.evaluate()
    return result_of(game, kinds, run.state())


def _reached(run: Run, eps: float | None) -> bool:
    """Tell whether the last evaluation, if it was just now, was good enough."""
    return eps is not None and bool(run.trace) and run.trace[-1][0] == run.round and run.evaluate() <= eps


def _check(
    game: Any, kinds: Sequence[str], learners: Sequence[Any] | None, settings: dict[str, Any], stop: dict[str, Any]
) -> None:
    """Refuse arguments that will not do."""
    players = len(game.sets)
    if len(kinds) != players:
        raise ValueError(f"feedback, learners: expected one a player, {players}, got {len(kinds)}")
    for kind in kinds:
        one_of("feedback", kind, FEEDBACK)
    if "expected" in kinds and set(kinds) != {"expected"}:
        raise ValueError('feedback: expected "expected" for all players or for none, as nobody draws then')
    if "expected" in kinds and not hasattr(game, "expected_losses"):
        raise ValueError(f'feedback: "expected" needs a game with expected_losses, got a {type(game).__name__}')
    if settings["horizon"] is not None:
        whole("horizon", settings["horizon"])
    elif stop["eps"] is None and stop["time_limit"] is None:
        raise ValueError("horizon: expected a number of rounds, or else eps or time_limit, got none of them")
    for name, limit in stop.items():
        if limit is not None:
            number(name, limit, "a number of at least 0", least=0.0)
    number("noise", settings["noise"], "a number in [0, 1]", least=0.0, below=math.nextafter(1.0, 2.0))
    if "expected" in kinds and settings["noise"]:
        raise ValueError('noise: expected 0 where feedback is "expected", got one')


def solve_cce_seeds(game: Any, seeds: Sequence[int], *, threads: int | None = None, **options: Any) -> list[CCEResult]:
    """Return independent runs of :func:`solve_cce`, several at a time.

    Compiled loops run beside each other, one a thread; results do not depend on how many there are.

    Args:
        game: As there.
        seeds: One a run.
        threads: How many at a time; None: one a core.
        **options: As there, without ``seed``, ``learners`` and ``checkpoint``.

    Raises:
        ValueError: An option cannot be shared by runs, or is out of range.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> [result.rounds for result in solve_cce_seeds(ColonelBlotto([3, 3], [1, 2, 3]), [0, 1], horizon=50)]
        [50, 50]

    Source:
        independent runs.
    """
    if shared := {"seed", "learners", "checkpoint"} & set(options):
        raise ValueError(
            f"{', '.join(sorted(shared))}: expected options that all runs can share, got one that is of one run"
        )
    at_once = whole("threads", threads if threads is not None else os.cpu_count() or 1)
    if "bandit" in np.atleast_1d(options.get("feedback", "")):
        for actions in game.sets:  # computed once, before threads share them
            _ = actions.support
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda seed: solve_cce(game, seed=seed, **options), seeds))
