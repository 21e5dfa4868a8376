"""``VideoVoxelDataset``: ordinary videos in, event-camera training samples out, made while the loader runs.

Paper: arXiv 2505.16797, section 3.4. A sample depends on (seed, epoch, index) alone, whatever worker makes it.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from thrifty._common.checks import one_of, whole
from thrifty.data.v2v.augment import (
    Augmentation,
    burn_text,
    change_contrast,
    pause_indices,
    place_crop,
    resized,
    shake_offsets,
)
from thrifty.data.v2v.camera import EventCamera, FixedThresholds
from thrifty.data.v2v.index import VideoIndex
from thrifty.data.v2v.simulator import VideoToVoxel
from thrifty.data.v2v.video import Reader, VideoError, content_key, frame_stream, read_frames


class VideoVoxelDataset(Dataset[dict[str, Any]]):
    """Voxel grids and the frames to reconstruct, from a list of videos; no event is ever stored.

    Args:
        videos: Files, folders, a ``.txt`` list, or a :class:`VideoIndex` (which is not scanned again).
        sequence_length: Voxel grids of a sample, T.
        crop: Side of the square that is cut out, in pixels.
        step: Frames between the starts of two samples of a video; as many as a sample spans, if ``None``.
        max_per_video: Samples of one video at most.
        augmentation: How frames are varied.
        v2v: The sensor; its camera is drawn afresh for every sample, or is a :class:`FixedThresholds`.
        seed: Every random choice follows from it, the epoch and the index.
        simulate: ``"worker"``: the sample holds voxel grids; ``"step"``: it holds frames and a seed, for a training
            step that runs :meth:`voxels` on its device (a quarter of the bytes travel).
        return_first_frame: Put the frame before the first voxel grid in front (flow needs it).
        return_previous_voxel: Put one more voxel grid in front (E-RAFT needs it).
        full_range: Expand limited-range video.
        reader: What decodes: see :func:`~thrifty.data.v2v.video.frame_stream`.
        on_error: ``"skip"``: where a sample cannot be decoded, the next one that can takes its place, and its video is
            warned of once and counted; ``"raise"``.

    Raises:
        ValueError: An argument is out of range, or no video is long and large enough for a sample.

    Warns:
        UserWarning: Some videos are too short or too small for a sample, or cannot be read.

    Example:
        >>> from thrifty.data.v2v.video import write_video
        >>> levels = np.random.default_rng(0).integers(0, 255, (31, 48, 64)).astype(np.uint8)
        >>> clip = write_video("clip.mp4", levels)
        >>> dataset = VideoVoxelDataset([clip], sequence_length=3, crop=32)
        >>> sample = dataset[0]
        >>> sample["voxels"].shape, sample["frames"].shape
        (torch.Size([3, 5, 32, 32]), torch.Size([3, 1, 32, 32]))

    Source:
        arXiv 2505.16797, section 3.4.
    """

    def __init__(
        self,
        videos: Any,
        sequence_length: int = 40,
        crop: int = 128,
        step: int | None = None,
        max_per_video: int = 10,
        augmentation: Augmentation | None = None,
        v2v: VideoToVoxel | None = None,
        seed: int = 0,
        *,
        simulate: Literal["worker", "step"] = "worker",
        return_first_frame: bool = False,
        return_previous_voxel: bool = False,
        full_range: bool = False,
        reader: Reader = "pyav",
        on_error: Literal["skip", "raise"] = "skip",
    ) -> None:
        one_of("simulate", simulate, ("worker", "step"))
        one_of("on_error", on_error, ("skip", "raise"))
        self.sequence_length, self.crop = whole("sequence_length", sequence_length), whole("crop", crop)
        self.v2v, self.augmentation = v2v or VideoToVoxel(), augmentation or Augmentation()
        self.seed, self.simulate, self.on_error = seed, simulate, on_error
        self._how: dict[str, Any] = {"full_range": full_range, "reader": reader}
        self.first, self.previous = return_first_frame, return_previous_voxel
        per_voxel = self.v2v.frames_per_voxel
        self.frames_per_sample = per_voxel * (self.sequence_length + self.previous) + 1
        step = self.frames_per_sample - 1 if step is None else whole("step", step)
        unread: list[str] = []
        if isinstance(videos, VideoIndex):
            self.index = videos
        else:
            self.index, unread = VideoIndex.scan(videos, on_error=on_error)
        samples = self._samples(step, whole("max_per_video", max_per_video))
        #: Videos of the list without a sample: those that cannot be opened, and those too short or too small.
        self.left_out = len(unread) + int((samples == 0).sum())
        self._ends, self._step = np.cumsum(samples), step
        # shared with the workers, so that set_epoch reaches those that live on, and what they skip is counted here
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._skipped = torch.zeros(len(self.index), dtype=torch.uint8)
        for shared in (self._epoch, self._skipped):
            shared.share_memory_()  # type: ignore[no-untyped-call]

    def _samples(self, step: int, most: int) -> NDArray[np.int64]:
        """Return how many samples each video holds, and warn of those that hold none."""
        starts = 1 + (self.index.frames - self.frames_per_sample) // step
        heights = (self.index.sizes[:, 0] * self.augmentation.keep_top).astype(int)
        large = np.minimum(heights, self.index.sizes[:, 1]) >= self.crop
        samples: NDArray[np.int64] = np.where(large, np.clip(starts, 0, most), 0)
        without = np.flatnonzero(samples == 0)
        if len(without) == 0:
            return samples
        first = int(without[0])
        name = self.index.path(first)
        wanted = f"at least {self.frames_per_sample} frames and {self.crop} pixels each way"
        if len(without) == len(samples):
            height, width = self.index.sizes.max(axis=0)
            raise ValueError(
                f"videos: expected one of {wanted}, got {len(samples)} of at most {self.index.frames.max()} frames and "
                f"{height} x {width} pixels, the first {name}"
            )
        warnings.warn(
            f"left out: {len(without)} of {len(samples)} videos are not of {wanted}, the first {name} "
            f"({self.index.frames[first]} frames of {self.index.sizes[first][0]} x {self.index.sizes[first][1]})",
            stacklevel=3,
        )
        return samples

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def skipped(self) -> int:
        """Videos that turned out to be corrupt, in this process and in all its workers."""
        return int(self._skipped.sum())

    @property
    def skipped_videos(self) -> Tensor:
        """Which ones, as 0 and 1 for every video of the index: to be kept in a checkpoint, or joined over processes."""
        return self._skipped

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, and with it new cameras, crops and pauses; persistent workers see it, too."""
        self._epoch.fill_(epoch)

    def locate(self, index: int) -> tuple[str, int]:
        """Return the video of a sample, and its first frame there."""
        video = self._video(index)
        return self.index.path(video), (index - int(self._ends[video - 1] if video else 0)) * self._step

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index: expected one in [{-len(self)}, {len(self)}), got {index}")
        for offset in range(len(self)):  # what was skipped before decides nothing: the result depends on files alone
            chosen = (index + offset) % len(self)
            try:
                return self._make(chosen)
            except (VideoError, OSError) as error:
                if self.on_error == "raise":
                    raise
                self._skip(self._video(chosen), error)
        raise VideoError(f"videos: expected one that can be decoded, got none of {len(self.index)}")

    def _skip(self, video: int, error: Exception) -> None:
        if not self._skipped[video]:
            self._skipped[video] = 1
            warnings.warn(f"skipped: {error}", stacklevel=3)

    def _make(self, index: int) -> dict[str, Any]:
        seed = sample_seed(self.seed, int(self._epoch), index)
        rng = np.random.default_rng(seed)
        path, start = self.locate(index)
        frames = self._frames(path, start, self.index.sizes[self._video(index)], rng)
        per_voxel, skip = self.v2v.frames_per_voxel, int(self.previous)
        places = np.arange(skip, self.sequence_length + skip + 1)[0 if self.first else 1 :] * per_voxel
        sample: dict[str, Any] = {"index": index, "seed": seed, "path": path}
        if self.simulate == "step":
            return sample | {"video": torch.from_numpy(frames), "places": torch.from_numpy(places)}
        targets = torch.from_numpy(frames[places])[:, None].float() / 255
        return sample | {"frames": targets, "voxels": self.voxels(torch.from_numpy(frames)[None], [seed], [path])[0]}

    def voxels(self, video: UInt8[Tensor, "n frames h w"], seeds: Sequence[int], paths: Sequence[str]) -> Tensor:
        """Run the sensor over samples on the device of their frames, each with the chance of its own seed.

        Args:
            video: Frames, as ``simulate="step"`` gives them under ``"video"``.
            seeds: Their ``"seed"``.
            paths: Their ``"path"``.
        """
        law: Any = self.v2v.camera
        cameras, noise = [], []
        for seed, path in zip(map(int, seeds), paths, strict=True):
            generator = torch.Generator().manual_seed(seed)
            if isinstance(law, FixedThresholds):
                cameras.append(law.sample_for(content_key(path), generator))
            else:
                cameras.append(law if isinstance(law, EventCamera) else law.sample(1, generator))
            noise.append(int(torch.randint(0, 2**62, (1,), generator=generator)))
        grids: Tensor = self.v2v(video, camera=EventCamera.joined(cameras), seeds=np.array(noise))
        return grids

    def _video(self, index: int) -> int:
        return int(np.searchsorted(self._ends, index, side="right"))

    def _frames(self, path: str, start: int, size: Any, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Return the frames of a sample, cut, paused, shaken and degraded."""
        how = self.augmentation
        height, width = map(int, size)
        top, left, side = place_crop(height, width, self.crop, how, rng)
        shown = pause_indices(self.frames_per_sample, self.v2v.frames_per_voxel, how.pause, rng)
        needed = int(shown.max()) + 1
        if how.shake:
            frames = self._shaken(path, start, needed, (top, left, side), (height, width), rng)
        else:
            frames = read_frames(path, start, needed, window=(top, left, side, side), **self._how)
        if how.cut and rng.random() < how.cut and needed > 2:
            at, other = int(rng.integers(1, needed)), int(rng.integers(0, start + 1))
            window = (top, left, side, side)
            frames = np.concatenate([frames[:at], read_frames(path, other, needed, window=window, **self._how)[at:]])
        frames = resized(frames, self.crop)[shown]
        if how.contrast is not None and rng.random() < how.contrast_share:
            frames = change_contrast(frames, rng.uniform(*how.contrast))
        if how.flip and rng.random() < 0.5:
            frames = frames[:, :, ::-1]
        if how.text and rng.random() < how.text:
            frames = burn_text(frames, rng)
        return np.ascontiguousarray(frames)

    def _shaken(
        self, path: str, start: int, needed: int, place: tuple[int, int, int], size: tuple[int, int],
        rng: np.random.Generator,
    ) -> NDArray[np.uint8]:  # fmt: skip
        top, left, side = place
        walk = shake_offsets(needed, self.augmentation.shake, rng)
        tops = np.clip(top + walk[:, 0], 0, size[0] - side)
        lefts = np.clip(left + walk[:, 1], 0, size[1] - side)
        whole_frames = frame_stream(path, start, needed, **self._how)
        return np.stack([f[t : t + side, x : x + side] for f, t, x in zip(whole_frames, tops, lefts, strict=True)])


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Return the seed of one sample: a hash of the three."""
    text = f"{seed}/{epoch}/{index}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 2
