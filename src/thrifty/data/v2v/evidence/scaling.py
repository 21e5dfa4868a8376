"""Claims `data-scaling`: trained on 1, 4 and 16 clips in equally many steps, tested on another simulator's events.

Reconstruction (FireNet): clips are windows of the cyclists and of the film, in their own motion; the test is the man in
the car, whom no arm has seen, as eventify-dvs sees him. Flow (EV-FlowNet): clips are windows that move, turn and zoom
over frames of the same two, with exact flow as the teacher; the test moves over frames of the man in the car.
"""

from __future__ import annotations

import statistics
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import clips
from thrifty.bench.evidence import Evidence
from thrifty.data.v2v import EventCameraSampler, VideoToVoxel
from thrifty.data.v2v.evidence.speed import grids_of_another
from thrifty.data.v2v.losses import ReconstructionLoss
from thrifty.data.v2v.metrics import flow_errors, frame_errors
from thrifty.data.v2v.networks import build_model
from thrifty.data.v2v.teachers import warped_clip
from thrifty.data.v2v.video import read_frames

COUNTS = (1, 4, 16)
SIDE, GRIDS = 32, 5
STEPS = {"firenet": 800, "evflownet": 1500}
#: A quarter of EV-FlowNet's channels: what a laptop trains in a minute.
SIZE: dict[str, dict[str, int]] = {"firenet": {}, "evflownet": {"base": 8}}
#: Made by :func:`tune`.
RATE = {"firenet": 1e-3, "evflownet": 1e-3}
GRID = (3e-4, 1e-3, 3e-3)
#: Cameras like the rival's, whose threshold is 0.2 and which has no noise: what differs is the simulator.
LAW = EventCameraSampler(threshold=(0.1, 0.4), noise_std=(0, 0.02), hot_fraction=(0, 0))
TEST_THRESHOLD = 0.2


def show(ctx: Context, evidence: Evidence) -> None:
    """Train every arm on every seed and compare the errors of 16 clips with those of one."""
    for task, model, metric in (("frames", "firenet", "mse"), ("flow", "evflownet", "epe")):
        name, unit = f"data-scaling-{task}", {"mse": "MSE", "epe": "px"}[metric]
        if ctx.late(evidence, name, needs=60):
            continue
        arms = [f"{count} clip{'s' * (count > 1)}" for count in COUNTS]
        found = ctx.runs(
            evidence, arms, ctx.seeds(quick=0, full=2), partial(_of_arm, model), workload=model,
        )  # fmt: skip
        for arm, runs in found.items():
            metrics = {key: Measurement.of([run[key] for run in runs], "") for key in runs[0]}
            evidence.row(arm, metrics, workload=f"{model}, {STEPS[model]} steps, events of eventify-dvs")
        if len(found) < len(arms):
            continue
        one, many = ([run[metric] for run in found[arm]] for arm in (arms[0], arms[-1]))
        evidence.measured(name, Measurement.of(many, unit).minus(Measurement.of(one, unit)))
        means = [statistics.fmean(run[metric] for run in found[arm]) for arm in arms]
        evidence.curves(f"Error by training clips: {model}", "clips", unit, {model: (COUNTS, means)}, log_x=True)


def _of_arm(model: str, arm: str, seed: int) -> dict[str, float]:
    return error(model, int(arm.split(maxsplit=1)[0]), seed)


@cache
def windows() -> tuple[NDArray[np.uint8], ...]:
    """Return 16 windows of 96 x 96 pixels: four places of the cyclists at two times, eight of the film."""
    bikes, film = read_frames(clips.path("bikes")), read_frames(clips.path("bigbuckbunny"), 0, 101)
    made = [bikes[t : t + 101, 90:186, x : x + 96] for x in (40, 190, 340, 490) for t in (0, 125)]
    made += [film[:, y : y + 96, x : x + 96] for y in (200, 420) for x in (150, 450, 750, 1050)]
    order = np.random.default_rng(0).permutation(len(made))
    return tuple(made[i] for i in order)


def tune() -> dict[str, float]:
    """Return the rates that err least, after training on 16 clips, on a part of the cyclists that no arm sees."""
    road = read_frames(clips.path("bikes"), 0, 101)[:, 186:, 232:408]
    found = {}
    for model, metric in (("firenet", "mse"), ("evflownet", "epe")):
        errors = {rate: error(model, 16, 100, rate=rate, unseen=road)[metric] for rate in GRID}
        found[model] = min(errors, key=lambda rate, errors=errors: errors[rate])  # type: ignore[misc]
    return found


def error(
    model: str, count: int, seed: int, *, rate: float | None = None, unseen: NDArray[np.uint8] | None = None
) -> dict[str, float]:
    """Train a network on so many clips, and return its errors on the test clip, or on another."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build_model(model, **SIZE[model])
    rng, v2v = np.random.default_rng([seed, count]), VideoToVoxel(camera=LAW)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate or RATE[model], amsgrad=True)
    step = _reconstruction_step if model == "firenet" else _flow_step
    held = windows()[:count]
    net.train()
    for _ in range(STEPS[model]):
        loss = step(net, v2v, held, rng)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    clip = read_frames(clips.path("carphone"), 0, 101) if unseen is None else unseen
    return (_test_frames if model == "firenet" else _test_flow)(net.eval(), clip)


def _reconstruction_step(
    net: nn.Module, v2v: VideoToVoxel, held: tuple[NDArray[np.uint8], ...], rng: np.random.Generator
) -> Tensor:
    cut = []
    for _ in range(2):
        clip = held[rng.integers(len(held))]
        t, y, x = (
            int(rng.integers(0, size - want + 1))
            for size, want in zip(clip.shape, (5 * GRIDS + 1, SIDE, SIDE), strict=True)
        )
        part = clip[t : t + 5 * GRIDS + 1, y : y + SIDE, x : x + SIDE]
        cut.append(part[:, :, ::-1] if rng.random() < 0.5 else part)
    frames = torch.from_numpy(np.ascontiguousarray(np.stack(cut)))
    grids = v2v(frames, torch.Generator().manual_seed(int(rng.integers(2**62))))
    targets = frames[:, 5::5, None].float() / 255
    state: Any = None
    total = torch.zeros(())
    loss = ReconstructionLoss(None, weights=(0, 1, 0))
    for t in range(GRIDS):
        prediction, state = net(grids[:, t], state)
        total = total + loss.step(t, GRIDS, prediction, targets[:, t])
    return total


def _flow_step(
    net: nn.Module, v2v: VideoToVoxel, held: tuple[NDArray[np.uint8], ...], rng: np.random.Generator
) -> Tensor:
    made = [_moving(held[rng.integers(len(held))], rng) for _ in range(4)]
    frames, flow = (torch.from_numpy(np.stack(part)) for part in zip(*made, strict=True))
    grids = v2v(frames, torch.Generator().manual_seed(int(rng.integers(2**62))))
    loss: Tensor = (net(grids[:, 0])[0] - flow).abs().mean()
    return loss


def _moving(clip: NDArray[np.uint8], rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return six frames of a window that moves over a still, and the flow over all five intervals."""
    still = clip[int(rng.integers(len(clip)))]
    frames, flow = warped_clip(still, 6, SIDE, rng, speed=0.8)
    return frames, flow.sum(axis=0)


@torch.no_grad()
def _test_frames(net: nn.Module, frames: NDArray[np.uint8]) -> dict[str, float]:
    errors, state = [], None
    for t, grid in enumerate(torch.from_numpy(grids_of_another(frames[None], TEST_THRESHOLD))):
        prediction, state = net(grid[None], state)
        errors.append(frame_errors(prediction, torch.from_numpy(frames[5 * t + 5])[None, None].float() / 255))
    return {name: statistics.fmean(row[name] for row in errors) for name in errors[0]}


@torch.no_grad()
def _test_flow(net: nn.Module, clip: NDArray[np.uint8]) -> dict[str, float]:
    rng = np.random.default_rng(7)
    made = [_moving(clip, rng) for _ in range(24)]
    grids = torch.from_numpy(grids_of_another(np.stack([frames for frames, _ in made]), TEST_THRESHOLD))
    errors = []
    for grid, (_, flow) in zip(grids, made, strict=True):
        truth = torch.from_numpy(flow)[None]
        errors.append(flow_errors(net(grid[None])[0], truth) | {"zero flow": flow_errors(0 * truth, truth)["epe"]})
    return {name: statistics.fmean(row[name] for row in errors) for name in ("epe", "zero flow")}
