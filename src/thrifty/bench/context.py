"""What an ``evidence.py`` is given: the mode, the seed, the clock, and the measuring tools."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from thrifty._common.files import write_whole
from thrifty.bench import ceilings
from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Claim, Measurement, Mode
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import Timing, time_contenders

T = TypeVar("T")


@dataclass
class Context:
    """One run of one method's experiment.

    Args:
        claims: What the method claims.
        mode: ``"quick"`` or ``"full"``.
        seed: Every random choice of the run follows from it.
        device: ``"cpu"`` or ``"cuda"``.
        data: The user's own data, in place of the embedded ones.
        deadline: When the budget ends, on the clock of :func:`time.monotonic`.
        on_progress: Told (done, total, what is being done).
        on_change: Told whenever the evidence grows.
        resume: Where finished pieces of a full run are kept until it is complete; ``None`` keeps nothing.
    """

    claims: Sequence[Claim]
    mode: Mode = "quick"
    seed: int = 0
    device: str = "cpu"
    data: Path | None = None
    deadline: float = float("inf")
    on_progress: Callable[[int, int, str], object] = lambda done, total, text: None
    on_change: Callable[[Evidence], None] = lambda evidence: None
    resume: Path | None = None
    resumed: int = field(default=0, init=False)

    def evidence(self, workload: str) -> Evidence:
        """Begin to collect what this run finds on ``workload`` (a sentence for the reader)."""
        evidence = Evidence(self.claims, self.mode, self.on_change)
        evidence.workload = workload
        return evidence

    @property
    def full(self) -> bool:
        """Whether the whole experiment is asked for."""
        return self.mode == "full"

    def seeds(self, *, quick: int, full: int) -> list[int]:
        """Return that many consecutive seeds, from the run's own on."""
        return list(range(self.seed, self.seed + (full if self.full else quick)))

    def remaining(self) -> float:
        """Return the seconds left of the budget."""
        return self.deadline - time.monotonic()

    @cached_property
    def ceilings(self) -> dict[str, Measurement]:
        """What the machine reaches at best in this run; see :func:`thrifty.bench.ceilings.measure`."""
        return ceilings.measure(self.device)

    def progress(self, done: int, total: int, text: str) -> None:
        """Tell the person who waits how far the run is."""
        self.on_progress(done, total, text)

    def attempt(
        self, evidence: Evidence, contender: str, work: Callable[..., T], *arguments: Any, workload: str = ""
    ) -> T | None:
        """Return what one contender's work gives; if it fails, add a row that says so and return ``None``.

        The other contenders go on. Missing data is not a contender's failure, and is passed on.
        """
        try:
            return work(*arguments)
        except UnavailableError:
            raise
        except ImportError as error:
            evidence.row(contender, {}, workload=workload, error=str(error))
        except Exception as error:  # whatever a rival does, the run goes on
            evidence.row(contender, {}, workload=workload, error=f"failed: {type(error).__name__}: {error}")
        return None

    def every_seed(
        self,
        evidence: Evidence,
        contender: str,
        seeds: Sequence[int],
        compute: Callable[..., Any],
        *arguments: Any,
        workload: str = "",
    ) -> list[Any] | None:
        """Return what ``compute(*arguments, seed)`` gives for each seed: an :meth:`attempt` whose pieces are resumable.

        The value must be what JSON can carry.
        """

        def work() -> list[Any]:
            return [self.once(f"{contender}, {workload}", seed, compute, *arguments, seed) for seed in seeds]

        return self.attempt(evidence, contender, work, workload=workload)

    def runs(
        self,
        evidence: Evidence,
        contenders: Iterable[str],
        seeds: Sequence[int],
        compute: Callable[[str, int], Any],
        *,
        workload: str = "",
    ) -> dict[str, list[Any]]:
        """Return what ``compute(contender, seed)`` gives, for every contender that did not fail: see ``every_seed``."""
        found = {}
        names = list(contenders)
        for done, name in enumerate(names):
            self.progress(done, len(names), f"{name}: {workload}")
            result = self.every_seed(evidence, name, seeds, compute, name, workload=workload)
            if result is not None:
                found[name] = result
        return found

    def once(self, piece: str, seed: int, compute: Callable[..., Any], *arguments: Any) -> Any:
        """Return what ``compute`` gives for this piece and seed, from an interrupted full run if it was done there.

        The value must be what JSON can carry. Only runs of the same code, mode, seed and data share it, and it is
        dropped as soon as a run is complete.
        """
        if self.resume is None:
            return json.loads(json.dumps(compute(*arguments)))  # as a full run would give it
        key = hashlib.sha256(json.dumps([piece, seed]).encode()).hexdigest()[:16]
        path = self.resume / f"{key}.json"
        if path.exists():
            self.resumed += 1
            return json.loads(path.read_text())
        text = json.dumps(compute(*arguments))
        write_whole(path, text)
        return json.loads(text)

    def timed(
        self,
        evidence: Evidence,
        contenders: Mapping[str, Callable[[], object]],
        *,
        workload: str,
        quick: float,
        full: float,
        what: str = "time",
    ) -> dict[str, Measurement]:
        """Time contenders side by side, add a row each, and return their seconds.

        Args:
            evidence: Where the rows go.
            contenders: As in :meth:`time`.
            workload: Of the rows.
            quick: Seconds after which a quick run begins no further round of at most five.
            full: Likewise for a full run, of at most nine.
            what: The metric's name.
        """
        found = self.time(contenders, repeats=9 if self.full else 5, at_most=full if self.full else quick)
        for name, timing in found.items():
            evidence.row(name, timing.metrics(what), workload=workload)
        return {name: timing.seconds for name, timing in found.items()}

    def late(self, evidence: Evidence, *claims: str, needs: float = 0.0) -> bool:
        """Tell whether fewer than ``needs`` seconds of the budget are left; the claims then cannot be shown."""
        late = self.remaining() < needs
        if late:
            for claim in claims:
                evidence.cannot_show(claim, "the budget was used up before this could be measured")
        return late

    def time(
        self, contenders: Mapping[str, Callable[[], object]], *, repeats: int = 5, at_most: float = 10.0
    ) -> dict[str, Timing]:
        """Time contenders side by side; see :func:`thrifty.bench.timing.time_contenders`."""
        return time_contenders(contenders, repeats=repeats, at_most=at_most, device=self.device)
