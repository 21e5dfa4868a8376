"""One run: a network trained on what a selector and a trigger give it, and what that cost."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

from thrifty.data.coreset.core import Coreset
from thrifty.data.coreset.evidence.workloads import Workload
from thrifty.data.coreset.loader import CoresetLoader
from thrifty.data.coreset.quadratic import QuadraticTrigger
from thrifty.data.coreset.selectors import Craig, Crest, Glister, GradMatch, InfoBatch, RandomSubset
from thrifty.data.coreset.signal import KINDS, gradient_snr
from thrifty.data.coreset.triggers import RepresentativenessMonitor

OURS = "ERACS"
FULL = "all data"
BUDGET, BATCH, LR, EPOCHS, EVERY, TAU = 0.1, 20, 0.05, 120, 3, 0.3


def _every(epochs: int) -> RepresentativenessMonitor:
    return RepresentativenessMonitor(trigger="interval", every=epochs)


def setting(contender: str, matched: int | None) -> dict[str, Any]:
    """Return the loader's arguments for a contender; ``matched`` is ERACS' number of selections in that seed."""
    name, _, schedule = contender.partition(", ")
    if contender == OURS:
        return {"selector": GradMatch(), "monitor": RepresentativenessMonitor("spectral", TAU, "below", EVERY)}
    if contender == FULL:
        return {"selector": RandomSubset(), "budget": 1.0}
    if contender == "InfoBatch":
        return {"selector": InfoBatch(), "monitor": _every(1), "full_from": EPOCHS - EPOCHS // 8 + 1}
    if contender == "CREST":
        # An eighth of the batches that the authors take at once, as there are few samples.
        trigger = QuadraticTrigger()
        return {
            "selector": Crest(BATCH, part=0.05),
            "monitor": RepresentativenessMonitor(trigger=trigger, every=EVERY),
        }
    selectors = {"random": RandomSubset(), "GradMatch": GradMatch(), "CRAIG": Craig(), "GLISTER": Glister()}
    if schedule == "never":
        monitor = RepresentativenessMonitor(trigger="never")
    elif schedule == "as often as ERACS":
        assert matched is not None
        monitor = _every(max(1, round(EPOCHS / (matched + 1))))
    else:
        monitor = _every(int(schedule.removeprefix("every ")))
    return {"selector": selectors[name], "monitor": monitor}


def run(workload: Workload, contender: str, seed: int, matched: int | None = None, *, watch: bool = True) -> dict:
    """Train one network, and return what can be said of it, as JSON carries it.

    Args:
        workload: Data and network.
        contender: See :func:`setting`.
        seed: Of the weights, the order, and whatever is drawn.
        matched: Number of ERACS' selections.
        watch: Also measure ratios and discrepancies at every epoch; their time is not counted.
    """
    settings = setting(contender, matched)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = workload.network()
    whole = contender == FULL
    budget = len(workload.y) if settings.pop("budget", BUDGET) == 1.0 else BUDGET
    loader = CoresetLoader(
        TensorDataset(workload.x, workload.y), model, budget=budget, batch_size=BATCH, seed=seed,
        scoring_batch_size=2048, **settings,
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    ratios: list[list[float]] = []
    discrepancies: list[float] = []
    steps, apart, began = 0, 0.0, time.perf_counter()
    for _ in range(EPOCHS):
        for (x, y), weights in loader:
            losses = functional.cross_entropy(model(x), y, reduction="none")
            loader.observe(losses)
            optimizer.zero_grad()
            (weights * losses).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            steps += 1
        rate.step()
        if watch and not whole and not loader.coreset.full:
            paused = time.perf_counter()
            ratio, discrepancy = _staleness(loader.coreset)
            ratios.append(ratio)
            discrepancies.append(discrepancy)
            apart += time.perf_counter() - paused
    seconds = time.perf_counter() - began - apart
    with torch.no_grad():
        accuracy = float((model.eval()(workload.x_test).argmax(1) == workload.y_test).float().mean())
    return {
        "accuracy": 100 * accuracy,
        "updates": loader.history.updates - (contender not in (FULL, "InfoBatch")),
        "discrepancy": sum(discrepancies) / len(discrepancies) if discrepancies else None,
        "seconds": seconds,
        "steps": steps,
        "overhead": loader.history.overhead,
        "ratios": ratios,
        "discrepancies": discrepancies,
    }


def _staleness(coreset: Coreset) -> tuple[list[float], float]:
    """Return the three ratios of the subset, and what they stand in for, after an epoch."""
    assert coreset.subset is not None
    of_subset = coreset.gradients(coreset.subset.indices)
    return [min(gradient_snr(of_subset, kind), 1e6) for kind in KINDS], coreset.discrepancy()
