"""Training of event networks on ordinary video: reconstruction and flow, with checkpoints, resume and ``torchrun``.

Paper: arXiv 2505.16797, sections 3.5 and 4, and table of settings in the appendix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from thrifty._common.checks import one_of, whole
from thrifty._common.files import write_whole
from thrifty._common.runs import Progress, enter_run, first_process, world
from thrifty.data.v2v.dataset import VideoVoxelDataset
from thrifty.data.v2v.loading import enter_epoch, make_loader
from thrifty.data.v2v.losses import ReconstructionLoss
from thrifty.data.v2v.networks import build_model
from thrifty.data.v2v.saving import load_model, save_model
from thrifty.data.v2v.teachers import FlowTeacher, dis_flow


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        model: A name :func:`~thrifty.data.v2v.build_model` knows.
        epochs: Passes over the samples.
        batch: Samples at once, a process.
        lr: Rate.
        optimizer: ``"adam"`` or ``"adamw"``, both with amsgrad.
        weight_decay: Of AdamW.
        decay: Factor on the rate after every epoch; 1 keeps it.
        chunk: Steps of a sequence that are differentiated together; ``None``: all (back-propagation is cut between).
        recompute: Keep no activations of a step but compute them again (less memory, a third more time).
        precision: Of the forward pass: ``"fp32"`` or ``"bf16"``.
        workers: Processes that decode.
        seed: Of weights, shuffles and samples.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> Recipe.published("etnet").decay
        0.94

    Source:
        arXiv 2505.16797, appendix.
    """

    model: str = "e2vid"
    epochs: int = 80
    batch: int = 12
    lr: float = 1e-4
    optimizer: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0
    decay: float = 1.0
    chunk: int | None = None
    recompute: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"
    workers: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            whole(name, getattr(self, name))
        if not self.lr > 0:
            raise ValueError(f"lr: expected a rate above 0, got {self.lr}")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay: expected a factor in (0, 1], got {self.decay}")
        if self.chunk is not None:
            whole("chunk", self.chunk)
        one_of("optimizer", self.optimizer, ("adam", "adamw"))
        one_of("precision", self.precision, ("fp32", "bf16"))

    @classmethod
    def published(cls, model: str, **changes: Any) -> Recipe:
        """Return the paper's settings for a network; of one of your own, those of E2VID."""
        of_network: dict[str, dict[str, Any]] = {
            "hypere2vid": {"lr": 1e-3, "epochs": 60},
            "etnet": {"batch": 6, "lr": 2e-4, "epochs": 100, "optimizer": "adamw", "weight_decay": 0.01, "decay": 0.94},
            "evflownet": {"batch": 10, "epochs": 50},
            "eraft": {"batch": 10, "epochs": 50},
        }
        return cls(model=model, **(of_network.get(model, {}) | changes))


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
        progress: Progress | None = None, steps: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Train; an interrupted run in ``out`` goes on from its last checkpoint, in the middle of its epoch.

        Args:
            out: Folder for checkpoints, ``result.json`` and the model; ``None`` keeps nothing.
            save_every: Steps between checkpoints.
            about: What else the run depends on (its videos), so that one in ``out`` that differs is refused.
            progress: Told (step, steps, loss).
            steps: Stop there, as an interrupt would; the run can go on.

        Returns:
            ``steps``, ``loss`` (the last), ``losses`` (of this call), ``skipped`` (corrupt videos) and ``resumed``.

        Raises:
            ValueError: The run in ``out`` has other settings.
            FileExistsError: ``out`` holds something else.
        """
        total = self.recipe.epochs * self.steps_an_epoch
        begun = self._resume(out, about)
        last = min(total, steps) if steps is not None else total
        losses: list[float] = []
        done = begun
        while done < last:
            epoch, within = divmod(done, self.steps_an_epoch)
            self._begin_epoch(epoch, within)
            for batch in self.loader:
                losses.append(self._step(batch, epoch))
                done += 1
                if progress is not None and first_process():
                    progress(done, total, losses[-1])
                if out is not None and (done % save_every == 0 or done == last):
                    self._save(out, done)
                if done == last or done % self.steps_an_epoch == 0:
                    break
        result = {
            "steps": done, "loss": losses[-1] if losses else None, "losses": losses, "skipped": self.data.skipped,
            "resumed": begun > 0,
        }  # fmt: skip
        if out is not None and done == total and first_process():
            save_model(self.model, out, self.recipe.model, bins=self.data.v2v.num_bins, force=True)
            text = json.dumps({k: v for k, v in result.items() if k != "losses"}, indent=1) + "\n"
            write_whole(out / "result.json", text, force=True)
        return result

    def save(self, folder: Path, *, force: bool = False) -> Path:
        """Write the model: :meth:`load` and :func:`~thrifty.data.v2v.load_model` read it.

        Raises:
            FileExistsError: There is one, and ``force`` is False.
        """
        return save_model(self.model, folder, self.recipe.model, bins=self.data.v2v.num_bins, force=force)

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

    def _step(self, batch: dict[str, Any], epoch: int) -> float:
        self.model.train()
        moved = self._on_device(batch)
        total = 0.0
        self.optimizer.zero_grad(set_to_none=True)
        for loss in self.sequence_loss(moved, epoch):
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
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

    def _resume(self, out: Path | None, about: Mapping[str, Any] | None) -> int:
        if out is None:
            return 0
        settings = {**asdict(self.recipe), "samples": len(self.data), "about": dict(about or {})}
        folder, state = enter_run(out, "v2v", settings)
        if folder is None:
            return 0
        held = torch.load(Path(folder) / "state.pt", map_location="cpu", weights_only=True)
        self.model.load_state_dict(held["model"])
        self.optimizer.load_state_dict(held["optimizer"])
        return int(state["global_step"])

    def _save(self, out: Path, step: int) -> None:
        if not first_process():
            return
        folder = out / f"checkpoint-{step}"
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        write_whole(folder / "state.pt", lambda file: torch.save(state, file), force=True)
        write_whole(folder / "trainer_state.json", json.dumps({"global_step": step}), force=True)  # last: it is whole
        kept = sorted(out.glob("checkpoint-*[0-9]"), key=lambda path: int(path.name.rpartition("-")[2]))
        for old in kept[:-2]:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()


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
