"""What recourse found: a changed row, a status and a certificate for every person; as table, JSON and sentences."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from thrifty._common.files import write_whole
from thrifty.solvers.ellice.problem import Status

#: Statuses of rows that hold an answer.
ANSWERED = ("already_valid", "optimal", "feasible")


@dataclass(frozen=True, eq=False)
class RecourseResult:
    """Answers, one entry each; with ``n_counterfactuals > 1`` a person has several, nearest first.

    Attributes:
        queries: Each answer's person as they are; DataFrame of raw values.
        counterfactuals: Each answer; missing values where there is none, never the unchanged person.
        query: Position of the person in the query table; ``[k]``.
        rank: 0 for a person's nearest answer; ``[k]``.
        status: ``"already_valid"`` (no change needed), ``"optimal"`` (proven nearest), ``"feasible"`` (certified),
            ``"infeasible"`` (proven: nothing within the limits is certified), ``"not_found"`` (not proven),
            ``"no_candidate"`` (no row of the table will do); ``[k]``.
        nominal_logit: Of the deployed model's last layer at the answer; ``[k]``, NaN where there is none.
        worst_logit: The worst over the ellipsoid, for the wanted class; ``[k]``.
        radius: The largest ε at which the answer stays certified; ``[k]``.
        distance: As it was minimised, in encoded (scaled) units; ``[k]``.
        changed: Names of the changed features; ``[k]``.
        message: Why there is no answer, that it is not proven nearest, or among what it is; ``[k]``.
        target: The wanted label of each; ``[k]``.
        epsilon: The tolerance ε of the certificates.
        seconds: Wall-clock seconds of the whole call.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)

        >>> from thrifty.solvers.ellice import ElliCE
        >>> answers = ElliCE(model, epsilon=0.01).fit(X, y).explain(X[y == 0][:2])
        >>> answers.statuses, bool((answers.worst_logit >= 0).all())
        ({'optimal': 2}, True)
    """

    queries: Any
    counterfactuals: Any
    query: NDArray[np.intp]
    rank: NDArray[np.intp]
    status: NDArray
    nominal_logit: Float[np.ndarray, " k"]
    worst_logit: Float[np.ndarray, " k"]
    radius: Float[np.ndarray, " k"]
    distance: Float[np.ndarray, " k"]
    changed: tuple[tuple[str, ...], ...]
    message: tuple[str, ...]
    target: NDArray
    epsilon: float
    seconds: float

    def __repr__(self) -> str:
        found = ", ".join(f"{count} {status}" for status, count in self.statuses.items()) or "nobody"
        return f"RecourseResult({found}; epsilon={self.epsilon:.4g}; to_frame(), to_json(), sentences())"

    def __len__(self) -> int:
        return len(self.status)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which entries hold an answer."""
        return np.isin(self.status, ANSWERED)

    @property
    def statuses(self) -> dict[Status, int]:
        """How many entries have each status."""
        names, counts = np.unique(self.status, return_counts=True)
        return dict(zip(names.tolist(), counts.tolist(), strict=True))

    def to_frame(self) -> Any:
        """Return the answers with their certificates as one DataFrame; certificate columns begin with ``cf_``."""
        frame = self.counterfactuals.copy()
        for name, values in self._facts().items():
            frame[f"cf_{name}"] = values
        return frame

    def to_json(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """Return a report as JSON; with ``path`` it is also written there."""
        entries = []
        facts = self._facts()
        before, after = self.queries.to_dict("records"), self.counterfactuals.to_dict("records")
        for i in range(len(self)):
            entry = {name: _plain(values[i]) for name, values in facts.items()}
            entry["changed"] = list(self.changed[i])
            entry["changes"] = {name: [_plain(before[i][name]), _plain(after[i][name])] for name in self.changed[i]}
            entry["counterfactual"] = (
                {name: _plain(value) for name, value in after[i].items()} if self.answered[i] else None
            )
            entries.append(entry)
        report = {
            "schema": "thrifty.ellice.recourse",
            "version": 1,
            "epsilon": self.epsilon,
            "seconds": self.seconds,
            "answers": entries,
        }
        text = json.dumps(report, indent=1, allow_nan=False)
        if path is not None:
            write_whole(path, text, force=force)
        return text

    def sentences(self) -> list[str]:
        """Return one sentence a person and answer."""
        return list(self._sentences())

    def _sentences(self) -> Iterator[str]:
        for i in range(len(self)):
            label = _plain(self.target[i])
            who = f"Person {self.query[i]}" + (f" (option {self.rank[i] + 1})" if self.rank[i] else "")
            within = f"every model within epsilon={self.epsilon:.4g} of it"
            up_to = f"certified up to epsilon={self.radius[i]:.4g}"
            if self.status[i] == "already_valid":
                yield f"{who}: no change is needed for {label!r}: the model and {within} agree ({up_to})."
            elif self.answered[i]:
                before, after = self.queries.iloc[i], self.counterfactuals.iloc[i]
                moves = [f"{name} from {_say(before[name])} to {_say(after[name])}" for name in self.changed[i]]
                if self.rank[i]:
                    proven = "an alternative"
                elif self.status[i] == "optimal":
                    proven = self.message[i] or "the nearest such change"
                else:
                    proven = "not proven to be the nearest"
                yield (
                    f"{who}: change {_join(moves)}; then the model says {label!r}, and so does {within} "
                    f"({up_to}; {proven})."
                )
            else:
                yield f"{who}: no answer for {label!r} ({self.status[i]}): {self.message[i]}."

    def _facts(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "rank": self.rank,
            "status": self.status,
            "target": self.target,
            "nominal_logit": self.nominal_logit,
            "worst_logit": self.worst_logit,
            "radius": self.radius,
            "distance": self.distance,
            "changed": [", ".join(names) for names in self.changed],
            "message": list(self.message),
        }


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _say(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
