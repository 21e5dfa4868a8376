"""Claims `randomised-camera`: a classifier trained on stored voxels, on a fixed camera, and on a fresh one every time.

Handwritten digits of 8 x 8 pixels, enlarged to 16 x 16, move 5 pixels in a random direction over a sensor of 20 x 20,
in 6 frames: 5 bins. It is tested on digits never seen, at six thresholds and two levels of noise.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.data.v2v import EventCamera, EventCameraSampler, VideoToVoxel

RANDOM, FIXED, STORED = "fresh camera", "fixed camera", "stored voxels"
STEPS, BATCH, RATE, TEST = 1500, 64, 1e-3, 497
CAMERAS = [(c, sigma) for c in (0.1, 0.2, 0.3, 0.6, 1.0, 1.5) for sigma in (0.0, 0.1)]
NOMINAL = EventCamera(0.3, 0.3)


def show(ctx: Context, evidence: Evidence) -> None:
    """Train every arm on every seed, and compare mean and worst accuracy over the test cameras."""
    seeds = ctx.seeds(quick=0, full=3)
    found = ctx.runs(evidence, (RANDOM, FIXED, STORED), seeds, accuracies, workload="moving digits")
    names = ("mean", "worst camera", "camera of the fixed arms")
    for arm, runs in found.items():
        metrics = {name: Measurement.of([run[name] for run in runs], "%") for name in names}
        evidence.row(arm, metrics, workload=f"moving digits, {STEPS} steps")
    if len(found) < 3:
        return
    mean, worst = ({arm: [run[name] for run in runs] for arm, runs in found.items()} for name in names[:2])
    best = [max(pair) for pair in zip(worst[FIXED], worst[STORED], strict=True)]
    of = Measurement.of
    evidence.measured("randomised-camera-worst", of(worst[RANDOM], "points").minus(of(best, "points")))
    evidence.measured("randomised-camera-mean", of(mean[RANDOM], "points").minus(of(mean[STORED], "points")))
    evidence.measured("randomised-camera-price", of(mean[RANDOM], "points").minus(of(mean[FIXED], "points")))
    places = [f"c {c:g}, noise {sigma:g}" for c, sigma in CAMERAS]
    curves = {
        arm: (places, [statistics.fmean(run["each"][i] for run in runs) for i in range(len(CAMERAS))])
        for arm, runs in found.items()
    }
    evidence.curves("Accuracy by test camera", "camera", "%", curves, kind="bar")


def accuracies(arm: str, seed: int) -> dict[str, Any]:
    """Train one arm and return its accuracies in per cent."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    x = torch.from_numpy(images[order].reshape(-1, 8, 8) / 16).float()
    y = torch.from_numpy(labels[order])
    generator = torch.Generator().manual_seed(seed)
    x_train, y_train = x[:-TEST], y[:-TEST]
    law: Any = EventCameraSampler() if arm == RANDOM else NOMINAL
    v2v = VideoToVoxel(camera=law)
    stored = v2v(moving(x_train, generator), generator)[:, 0] if arm == STORED else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(5, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 25, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    for _ in range(STEPS):
        chosen = torch.randint(0, len(x_train), (BATCH,), generator=generator)
        grid = v2v(moving(x_train[chosen], generator), generator)[:, 0] if stored is None else stored[chosen]
        loss = functional.cross_entropy(net(grid), y_train[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    each = [_accuracy(net, x[-TEST:], y[-TEST:], EventCamera(c, c, sigma)) for c, sigma in CAMERAS]
    mean = statistics.fmean(each)
    return {"mean": mean, "worst camera": min(each), "camera of the fixed arms": each[4], "each": each}


def moving(digits: Tensor, generator: torch.Generator) -> Tensor:
    """Return clips (n, 6, 20, 20) of digits that move in a direction of their own."""
    n = len(digits)
    large = functional.interpolate(digits[:, None], size=(16, 16), mode="bilinear", align_corners=False)
    turn = 2 * torch.pi * torch.rand(n, generator=generator)
    step = torch.stack([turn.cos(), turn.sin()], dim=1)
    frames = []
    for t in torch.linspace(-2.5, 2.5, 6):
        theta = torch.zeros(n, 2, 3)
        theta[:, 0, 0] = theta[:, 1, 1] = 20 / 16
        theta[:, :, 2] = -t * step * 2 / 16
        grid = functional.affine_grid(theta, [n, 1, 20, 20], align_corners=False)
        frames.append(functional.grid_sample(large, grid, align_corners=False)[:, 0])
    return (torch.stack(frames, dim=1).clamp(0, 1) * 255).round().to(torch.uint8)


@torch.no_grad()
def _accuracy(net: nn.Module, x: Tensor, y: Tensor, camera: EventCamera) -> float:
    generator = torch.Generator().manual_seed(99)
    grids = VideoToVoxel(camera=camera)(moving(x, generator), generator)[:, 0]
    return 100 * float((net(grids).argmax(dim=1) == y).float().mean())
