"""The settings of a pipeline, sensor, camera and samples, as one JSON file: what a training run is made from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from thrifty._common import settings
from thrifty._common.checks import one_of, whole
from thrifty.data.v2v.augment import Augmentation
from thrifty.data.v2v.camera import EventCameraSampler, FixedThresholds, preset
from thrifty.data.v2v.readers import READERS
from thrifty.data.v2v.simulator import VideoToVoxel

SCHEMA, VERSION = "thrifty.v2v.pipeline", 1


@dataclass(frozen=True)
class PipelineConfig:
    """Everything between a list of videos and a training sample.

    Args:
        num_bins: Bins of a voxel grid.
        frames_per_bin: Frame intervals of a bin.
        camera: ``"random"``: drawn afresh for every sample; ``"fixed-thresholds"``: the paper's ablation "-F"; or the
            name of a preset.
        sampler: Law of the random cameras.
        gamma: Of the video.
        log_eps: Added to the intensity.
        full_range: Expand limited-range video.
        init: Potential at the first frame.
        burn_in: Noisy frames before the first.
        noise: ``"potential"``, or ``"external"``, an ablation.
        representation: ``"discrete"`` or ``"interpolated"``.
        polarity: ``"net"``, ``"split"`` or ``"abs"``.
        normalize: Divide by robust maxima.
        dtype: Of potential and voxels: ``"float32"`` or ``"float64"``.
        sequence_length: Voxel grids of a sample.
        crop: Side of a sample, pixels.
        step: Frames between the starts of two samples of a video; as many as a sample spans, if ``None``.
        max_per_video: Samples of a video at most.
        reader: What decodes: ``"pyav"``, ``"opencv"`` or ``"torchcodec"``.
        on_error: What a corrupt video does: ``"skip"`` or ``"raise"``.
        augmentation: How frames are varied.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> config = PipelineConfig(crop=64, camera="davis346")
        >>> PipelineConfig.from_json(config.to_json()) == config
        True
    """

    num_bins: int = 5
    frames_per_bin: int = 1
    camera: str = "random"
    sampler: EventCameraSampler = field(default_factory=EventCameraSampler)
    gamma: float | str = 2.2
    log_eps: float = 1e-3
    full_range: bool = False
    init: str = "uniform"
    burn_in: int = 0
    noise: str = "potential"
    representation: str = "discrete"
    polarity: str = "net"
    normalize: bool = False
    dtype: str = "float32"
    sequence_length: int = 40
    crop: int = 128
    step: int | None = None
    max_per_video: int = 10
    reader: str = "pyav"
    on_error: str = "skip"
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, ("float32", "float64"))
        one_of("reader", self.reader, tuple(READERS))
        one_of("on_error", self.on_error, ("skip", "raise"))
        for name in ("sequence_length", "crop", "max_per_video"):
            whole(name, getattr(self, name))
        if self.step is not None:
            whole("step", self.step)
        self.sensor()

    def sensor(self) -> VideoToVoxel:
        """Return the sensor that the settings describe."""
        laws: dict[str, Any] = {"random": self.sampler, "fixed-thresholds": FixedThresholds(self.sampler)}
        names = (
            "num_bins",
            "frames_per_bin",
            "gamma",
            "log_eps",
            "init",
            "burn_in",
            "noise",
            "representation",
            "polarity",
        )
        settings_: dict[str, Any] = {name: getattr(self, name) for name in (*names, "normalize")}
        law = laws[self.camera] if self.camera in laws else preset(self.camera)
        return VideoToVoxel(camera=law, dtype=getattr(torch, self.dtype), **settings_)

    def samples(self) -> dict[str, Any]:
        """Return the arguments of :class:`~thrifty.data.v2v.VideoVoxelDataset`, videos and seed apart."""
        names = ("sequence_length", "crop", "step", "max_per_video", "augmentation", "full_range", "reader", "on_error")
        return {name: getattr(self, name) for name in names} | {"v2v": self.sensor()}

    def to_json(self) -> str:
        """Return the settings as JSON, with their schema and version."""
        return settings.dump(asdict(self), SCHEMA, VERSION)

    @classmethod
    def from_json(cls, text: str, *, name: str = "config") -> PipelineConfig:
        """Read what :meth:`to_json` wrote, or what a person did, without the head; what it lacks is the default.

        Raises:
            ValueError: It is no JSON object, has an unknown key, or a value will not do.
        """
        known = [f.name for f in fields(cls)]
        found = settings.parse(text, SCHEMA, VERSION, known=known, headless=True, name=name)
        for key, kind in (("sampler", EventCameraSampler), ("augmentation", Augmentation)):
            if key in found:
                inner = settings.parse(
                    json.dumps(found[key]), SCHEMA, VERSION, known=[f.name for f in fields(kind)], headless=True,
                    name=f"{name}: {key}",
                )  # fmt: skip
                make: Any = kind
                found[key] = make(**{k: tuple(v) if isinstance(v, list) else v for k, v in inner.items()})
        return cls(**found)
