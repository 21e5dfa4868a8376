"""Training of event networks on ordinary video: reconstruction and flow, with checkpoints, resume and ``torchrun``.

Paper: arXiv 2505.16797, sections 3.5 and 4, and table of settings in the appendix.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from thrifty._common.files import write_whole
from thrifty._common.runs import Progress, enter_run, first_process, world
from thrifty._common.weights import check_finite
from thrifty.data.v2v.checkpoints import read_checkpoint, write_checkpoint
from thrifty.data.v2v.dataset import VideoVoxelDataset
from thrifty.data.v2v.loading import enter_epoch, make_loader
from thrifty.data.v2v.losses import ReconstructionLoss
from thrifty.data.v2v.networks import build_model
from thrifty.data.v2v.recipe import Recipe
from thrifty.data.v2v.recordings import evaluate
from thrifty.data.v2v.saving import GRIDS, load_model, save_model
from thrifty.data.v2v.teachers import FlowTeacher, dis_flow

#: Gives a network's error on what it was not trained on.
Judge = Callable[[nn.Module], float]


class Trainer:
    """What both tasks share: loop, optimizer, checkpoints; a subclass says what a sequence's loss is.

    Args:
        data: Samples; with ``simulate="step"`` the sensor runs on the training device.
        recipe: How to train.
        device: Where.
        model: In place of a fresh one.

    Raises:
        ValueError: The data lack a frame or a voxel grid that the task needs.
    """

    def __init__(
        self, data: VideoVoxelDataset, recipe: Recipe, *, device: str = "cpu", model: nn.Module | None = None
    ) -> None:
        self.data, self.recipe, self.device = data, recipe, torch.device(device)
        if model is None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(recipe.seed)
                model = build_model(recipe.model, bins=data.v2v.num_bins)
        self.model = model.to(self.device)
        self.model.grids = {name: getattr(data.v2v, name) for name in GRIDS}  # type: ignore[assignment]
        rank, processes = world()
        self.loader, self.sampler = make_loader(
            data, recipe.batch, workers=recipe.workers, rank=rank, world=processes, seed=recipe.seed,
            pin_memory=self.device.type == "cuda",
        )  # fmt: skip
        kind: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
        self.optimizer = kind(self.model.parameters(), lr=recipe.lr, amsgrad=True, weight_decay=recipe.weight_decay)
        self.steps_an_epoch = len(self.sampler) // recipe.batch
        self._wrapped: Any = self.model
        if processes > 1:
            # a step runs the network many times before it is differentiated
            self._wrapped = nn.parallel.DistributedDataParallel(self.model, broadcast_buffers=False)

    def fit(
        self, out: Path | None = None, *, save_every: int = 500, about: Mapping[str, Any] | None = None,
        progress: Progress | None = None, steps: int | None = None, judge: Judge | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Train; an interrupted run in ``out`` goes on from its last checkpoint, in the middle of its epoch.

        Args:
            out: Folder for checkpoints, ``result.json`` and the model; ``None`` keeps nothing.
            save_every: Steps between checkpoints.
            about: What else the run depends on (its videos), so that one in ``out`` that differs is refused.
            progress: Told (step, steps, loss).
            steps: Stop there, as an interrupt would; the run can go on.
            judge: Gives a network's error at every checkpoint; the one that errs least is kept in ``out/best``.

        Returns:
            ``steps``, ``loss`` (the last), ``losses`` (of this call), ``skipped`` (corrupt videos), ``resumed``, and
            with ``judge``, ``best`` (the least error) and ``best_step``.

        Raises:
            ValueError: The run in ``out`` has other settings, or a loss or a weight is no longer finite.
            FileExistsError: ``out`` holds something else.
            OSError: A checkpoint cannot be written.
        """
        total = self.recipe.epochs * self.steps_an_epoch
        reached = self._resume(out, about)
        begun = done = int(reached["global_step"])
        last = min(total, steps) if steps is not None else total
        losses: list[float] = []
        while done < last:
            epoch, within = divmod(done, self.steps_an_epoch)
            self._begin_epoch(epoch, within)
            for batch in self.loader:
                losses.append(self._step(batch, epoch, done + 1))
                done += 1
                if progress is not None and first_process():
                    progress(done, total, losses[-1])
                if out is not None and (done % save_every == 0 or done == last):
                    reached |= {"global_step": done, "loss": losses[-1]}
                    self._save(out, reached, judge)
                if done == last or done % self.steps_an_epoch == 0:
                    break
        self._join_skips()
        result = {
            "steps": done, "loss": losses[-1] if losses else reached.get("loss"), "losses": losses,
            "skipped": self.data.skipped, "resumed": begun > 0,
        } | {name: reached[name] for name in ("best", "best_step") if name in reached}  # fmt: skip
        if out is not None and done == total and first_process():
            self.save(out, force=True)
            text = json.dumps({k: v for k, v in result.items() if k != "losses"}, indent=1) + "\n"
            write_whole(out / "result.json", text, force=True)
        return result

    def evaluate(
        self, recordings: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **how: Any
    ) -> dict[str, dict[str, float]]:
        """Measure the network on recordings, with voxel grids made as in training.

        Args:
            recordings: HDF5 files; see :func:`~thrifty.data.v2v.writing.write_recording`.
            **how: See :func:`~thrifty.data.v2v.recordings.evaluate`.

        Returns:
            By file, its mean errors.
        """
        given = [recordings] if isinstance(recordings, str | os.PathLike) else recordings
        return {str(path): evaluate(self.model, path, device=str(self.device), **how) for path in given}

    def save(self, folder: Path, *, force: bool = False) -> Path:
        """Write the model: :meth:`load` and :func:`~thrifty.data.v2v.load_model` read it.

        Raises:
            FileExistsError: There is one, and ``force`` is False.
        """
        return save_model(self.model, folder, self.recipe.model, force=force)

    def load(self, folder: Path) -> None:
        """Take the weights of a model that was saved."""
        self.model.load_state_dict(load_model(folder).state_dict())

    def sequence_loss(self, batch: Mapping[str, Tensor], epoch: int) -> Iterator[Tensor]:
        """Yield losses, each to be differentiated before the next; together they are a sequence's loss."""
        raise NotImplementedError

    def _begin_epoch(self, epoch: int, within: int) -> None:
        enter_epoch(self.data, self.sampler, epoch, within * self.recipe.batch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr * self.recipe.decay**epoch

    def _step(self, batch: dict[str, Any], epoch: int, number: int) -> float:
        self.model.train()
        moved = self._on_device(batch)
        total = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for loss in self.sequence_loss(moved, epoch):
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        if not math.isfinite(total):
            raise ValueError(f"lr: the loss of step {number} is {total}; a rate below {self.recipe.lr:g} may help")
        self.optimizer.step()
        return total

    def _on_device(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return tensors on the training device; where samples hold frames, run the sensor there."""
        held = {k: v.to(self.device, non_blocking=True) if isinstance(v, Tensor) else v for k, v in batch.items()}
        if "video" in held:
            video, places = held["video"], held["places"][0]
            held["voxels"] = self.data.voxels(video, batch["seed"].tolist(), batch["path"])
            held["frames"] = video[:, places, None].float() / 255
        return held

    def _forward(self, voxel: Tensor, state: Any) -> tuple[Tensor, Any]:
        kind = self.device.type
        with torch.autocast(kind, torch.bfloat16) if self.recipe.precision == "bf16" else nullcontext():
            if self.recipe.recompute:
                output, state = checkpoint(self._wrapped, voxel, state, use_reentrant=False)
            else:
                output, state = self._wrapped(voxel, state)
        return output.float(), state

    def _resume(self, out: Path | None, about: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what an interrupted run reached, and take its state."""
        if out is None:
            return {"global_step": 0}
        settings = {**asdict(self.recipe), "samples": len(self.data), "about": dict(about or {})}
        folder, reached = enter_run(out, "v2v", settings)
        if folder is not None:
            held = read_checkpoint(folder)
            self.model.load_state_dict(held["model"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.data.skipped_videos.copy_(torch.maximum(self.data.skipped_videos, held["skipped"]))
        return reached

    def _save(self, out: Path, reached: dict[str, Any], judge: Judge | None) -> None:
        """Write a checkpoint, and keep the model apart if it errs least; adds what was found to ``reached``."""
        self._join_skips()
        if not first_process():
            return
        check_finite(self.model, f"step {reached['global_step']}")
        if judge is not None:
            error = judge(self.model)
            if error < reached.get("best", math.inf):
                reached |= {"best": error, "best_step": reached["global_step"]}
                self.save(out / "best", force=True)
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        write_checkpoint(out, reached, {**parts, "skipped": self.data.skipped_videos})

    def _join_skips(self) -> None:
        """Let every process know which videos another one found corrupt."""
        if world()[1] > 1:
            everywhere = self.data.skipped_videos.to(self.device)
            torch.distributed.all_reduce(everywhere, torch.distributed.ReduceOp.MAX)
            self.data.skipped_videos.copy_(everywhere.cpu())


class ReconstructionTrainer(Trainer):
    """Trains a network that turns voxel grids into frames.

    Args:
        data: Samples.
        recipe: How to train.
        loss: What for.
        teacher: Flow for the temporal consistency.
        device: Where.
        model: In place of a fresh one.

    Example:
        >>> import numpy as np
        >>> from thrifty.data.v2v.video import write_video
        >>> levels = np.random.default_rng(0).integers(0, 255, (31, 32, 32)).astype(np.uint8)
        >>> data = VideoVoxelDataset([write_video("clip.mp4", levels)], sequence_length=3, crop=16)
        >>> trainer = ReconstructionTrainer(data, Recipe("firenet", epochs=1, batch=1))
        >>> trainer.fit()["steps"]
        2

    Source:
        arXiv 2505.16797, section 3.5.
    """

    def __init__(
        self, data: VideoVoxelDataset, recipe: Recipe, *, loss: ReconstructionLoss | None = None,
        teacher: FlowTeacher = dis_flow, device: str = "cpu", model: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data, recipe, device=device, model=model)
        self.loss, self.teacher = loss or ReconstructionLoss(), teacher

    def sequence_loss(self, batch: Mapping[str, Tensor], epoch: int) -> Iterator[Tensor]:
        """Yield the loss of every chunk of steps."""
        voxels, frames = batch["voxels"], batch["frames"]
        steps = voxels.shape[1]
        chunk = self.recipe.chunk or steps
        state: Any = None
        previous: tuple[Tensor, Tensor] | None = None
        total = voxels.new_zeros(())
        for t in range(steps):
            prediction, state = self._forward(voxels[:, t], state)
            flow = None
            if previous is not None and self.loss.needs_flow(t, steps):
                flow = self.teacher(previous[1], frames[:, t])
            total = total + self.loss.step(t, steps, prediction, frames[:, t], previous, flow)
            state = self._curriculum(state, frames[:, t], epoch)
            previous = (prediction, frames[:, t])
            if (t + 1) % chunk == 0 or t + 1 == steps:
                yield total
                total = voxels.new_zeros(())
                state, previous = detached(state), (prediction.detach(), frames[:, t])

    def _curriculum(self, state: Any, target: Tensor, epoch: int) -> Any:
        """Mix the true frame into the one that HyperE2VID reads next."""
        epochs = getattr(self.model, "curriculum_epochs", 0)
        share = max(0.0, 1 - epoch / epochs) if epochs else 0.0
        return (state[0], share * target + (1 - share) * state[1]) if share else state


class FlowTrainer(Trainer):
    """Trains a network that turns voxel grids into flow, on the flow that a teacher sees between the frames.

    Args:
        data: Samples with ``return_first_frame=True``: a voxel grid spans two frames.
        recipe: How to train.
        teacher: Flow from the frame at the start of a voxel grid to the one at its end.
        device: Where.
        model: In place of a fresh one.

    Raises:
        ValueError: The data lack the frame before the first voxel grid, or the voxel grid before it where the network
            needs one.

    Example:
        >>> import numpy as np
        >>> from thrifty.data.v2v.video import write_video
        >>> levels = np.random.default_rng(0).integers(0, 255, (11, 32, 32)).astype(np.uint8)
        >>> clip = write_video("clip.mp4", levels)
        >>> data = VideoVoxelDataset([clip], sequence_length=2, crop=16, return_first_frame=True)
        >>> recipe, small = Recipe("evflownet", epochs=2, batch=1), build_model("evflownet", base=2)
        >>> FlowTrainer(data, recipe, model=small).fit()["steps"]
        2

    Source:
        arXiv 2505.16797, section 3.5.
    """

    def __init__(
        self, data: VideoVoxelDataset, recipe: Recipe, *, teacher: FlowTeacher = dis_flow, device: str = "cpu",
        model: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data, recipe, device=device, model=model)
        self.teacher = teacher
        if not data.first:
            raise ValueError("data: flow needs the frame before the first voxel grid; pass return_first_frame=True")
        self.extra = bool(getattr(self.model, "needs_previous", False))
        if self.extra and not data.previous:
            raise ValueError(f"data: {recipe.model} needs the voxel grid before; pass return_previous_voxel=True")

    def sequence_loss(self, batch: Mapping[str, Tensor], epoch: int) -> Iterator[Tensor]:
        """Yield the loss of every chunk of steps."""
        voxels, frames = batch["voxels"], batch["frames"]
        steps = frames.shape[1] - 1
        chunk = self.recipe.chunk or steps
        state: Any = None
        if self.extra:
            with torch.no_grad():
                _, state = self._forward(voxels[:, 0], None)
        extra = voxels.shape[1] - steps
        total = voxels.new_zeros(())
        for t in range(steps):
            prediction, state = self._forward(voxels[:, t + extra], state)
            total = total + (prediction - self.teacher(frames[:, t], frames[:, t + 1])).abs().mean() / steps
            if (t + 1) % chunk == 0 or t + 1 == steps:
                yield total
                total, state = voxels.new_zeros(()), detached(state)


def detached(state: Any) -> Any:
    """Return a state, whatever its nesting, without its history."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, list | tuple):
        return type(state)(detached(part) for part in state)
    return state


#: Task to trainer.
TRAINERS: dict[str, Callable[..., Trainer]] = {"reconstruction": ReconstructionTrainer, "flow": FlowTrainer}
