"""Runs of play in a file: one npz with arrays and a JSON text; nothing is pickled."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common import settings
from thrifty._common.files import write_whole
from thrifty.solvers.games.losses import offsets
from thrifty.solvers.games.result import CCEResult
from thrifty.solvers.games.rounds import Books
from thrifty.solvers.games.run import Run, result_of

SCHEMA, VERSION = "thrifty.games.run", 1

#: What the text holds.
FACTS = ("game", "settings", "round", "seconds", "learners", "generators")

#: What reading may end in where a file is another's, cut off, or damaged.
NOT_OURS = (
    KeyError, ValueError, TypeError, AttributeError, EOFError, RuntimeError, MemoryError, OverflowError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def save_state(
    game: Any, state: Mapping[str, Any], path: str | os.PathLike[str], *, force: bool
) -> Path:  # fmt: skip
    """Write a state of play, whole or not at all.

    Raises:
        FileExistsError: The file is there, and ``force`` is False.
        ValueError: The game or a learner cannot be described.
    """
    if not hasattr(game, "to_facts"):
        raise ValueError(f"game: expected one that a file can describe (to_facts), got a {type(game).__name__}")
    if not all(state["learners"]):
        raise ValueError("learners: expected learners with state_dict, which a file can hold")
    arrays = {
        f"learner_{i}_{name}": held
        for i, learner in enumerate(state["learners"])
        for name, held in learner.items()
        if isinstance(held, np.ndarray)
    }
    plain = [
        {name: held for name, held in learner.items() if not isinstance(held, np.ndarray)}
        for learner in state["learners"]
    ]
    facts = {
        "game": game.to_facts(),
        "learners": plain,
        **{name: state[name] for name in ("settings", "round", "seconds", "generators")},
    }
    for name, held in state["books"]._asdict().items():
        arrays[f"book_{name}"] = held
    trace = state["trace"]
    arrays["trace"] = np.array(
        [[reached, seconds, *gaps, *expected] for reached, seconds, gaps, expected in trace]
    ).reshape(len(trace), 2 + 2 * len(plain))
    if state["history"]:
        arrays["history"] = np.concatenate(state["history"])
    text = settings.dump(facts, SCHEMA, VERSION, indent=None)
    stored: dict[str, Any] = {"facts": np.array(text), **arrays}
    return write_whole(path, lambda file: np.savez_compressed(file, **stored), force=force)


def read_state(path: str | os.PathLike[str], game: Any = None) -> tuple[Any, dict[str, Any]]:
    """Return the game and the state that a file holds.

    Args:
        path: The file.
        game: In place of the one described, which it must equal.

    Raises:
        ValueError: It is no such file, or damaged, or of another game.
    """
    from thrifty.solvers.games.descriptions import game_from

    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        facts = settings.parse(str(arrays.pop("facts")), SCHEMA, VERSION, known=FACTS, needed=FACTS, name="facts")
        if game is None:
            game = game_from(facts["game"])
        elif json.loads(json.dumps(game.to_facts())) != facts["game"]:
            raise ValueError("game: the file is of another game")
        return game, _state(game, facts, arrays)
    except NOT_OURS as error:
        raise ValueError(f"{path}: expected a run of play that was saved here, got another file: {error}") from None


def _state(game: Any, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    sizes, players = [actions.d for actions in game.sets], len(game.sets)
    played, kinds = int(facts["round"]), facts["settings"]["feedback"]
    if not (played > 0 and len(kinds) == len(facts["learners"]) == players and len(facts["generators"]) == players + 1):
        raise ValueError(f"facts: expected a run of {players} players")
    total = sum(sizes)
    books = Books(
        *(
            _numbers(arrays, f"book_{name}", (n,))
            for name, n in zip(Books._fields, (players, players, total, total), strict=True)
        )
    )
    for i, learner in enumerate(facts["learners"]):
        for name in arrays:
            if name.startswith(f"learner_{i}_"):
                learner[name.removeprefix(f"learner_{i}_")] = _numbers(arrays, name, (sizes[i],))
    trace = _numbers(arrays, "trace", (len(arrays["trace"]), 2 + 2 * players))
    history = []
    if "history" in arrays:
        history = [_history(arrays["history"], game, played, "expected" not in kinds)]
    return {
        **{name: facts[name] for name in ("settings", "seconds", "learners", "generators")},
        "round": played,
        "books": books,
        "trace": [(int(row[0]), float(row[1]), row[2 : 2 + players], row[2 + players :]) for row in trace],
        "history": history,
    }


def _numbers(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    held = arrays[name]
    if held.shape != shape or held.dtype != np.float64 or not np.isfinite(held).all():
        raise ValueError(f"{name}: expected finite numbers of shape {shape}, got {held.dtype} {held.shape}")
    return held


def _history(held: NDArray[Any], game: Any, played: int, drawn: bool) -> NDArray[Any]:
    widths = [actions.m if drawn else actions.d for actions in game.sets]
    if held.shape != (played, sum(widths)):
        raise ValueError(f"history: expected shape {(played, sum(widths))}, got {held.shape}")
    if not drawn:
        return _numbers({"history": held}, "history", held.shape)
    at = offsets(widths)
    inside = all(
        ((held[:, a:b] >= -1) & (held[:, a:b] < actions.d)).all()
        for actions, a, b in zip(game.sets, at[:-1], at[1:], strict=True)
    )
    if held.dtype not in (np.int16, np.int32) or not inside:
        raise ValueError("history: expected coordinates of the players' sets, got others")
    return held


def go_on_from(path: str | os.PathLike[str], run: Run) -> None:
    """Let a run go on from a file.

    Raises:
        ValueError: It is of another game, or of other settings; the message names the first.
    """
    _, state = read_state(path, run.game)
    given = json.loads(json.dumps(run.settings))
    for name, value in given.items():
        if state["settings"].get(name) != value:
            raise ValueError(
                f"{name}: the run in {path} has {state['settings'].get(name)!r}, got {value!r}; choose another file"
            )
    run.load_state(state)


def load(path: str | os.PathLike[str], game: Any = None) -> CCEResult:
    """Return the result that a file holds; raises as :func:`read_state`."""
    game, state = read_state(path, game)
    return result_of(game, state["settings"]["feedback"], state)
