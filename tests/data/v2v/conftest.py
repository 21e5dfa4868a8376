"""Clips that the tests write themselves."""

from fractions import Fraction

import av
import numpy as np
import pytest

from thrifty.data.v2v.video import write_video


def moving(frames=31, height=48, width=64, seed=0):
    """Blobs that move over the picture: compressible, and nothing stands still."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    levels = np.full((frames, height, width), 90.0)
    for _ in range(4):
        place, speed, size, gain = (
            rng.uniform(0, 48, 2),
            rng.uniform(-1.5, 1.5, 2),
            rng.uniform(3, 8),
            rng.uniform(-80, 120),
        )
        for t in range(frames):
            cy, cx = place + speed * t
            levels[t] += gain * np.exp(-((y - cy % height) ** 2 + (x - cx % width) ** 2) / size**2)
    return np.clip(levels, 0, 255).astype(np.uint8)


@pytest.fixture
def clip(tmp_path):
    """Write a clip, and return its path."""

    def make(name="clip.mp4", **how):
        return write_video(tmp_path / name, moving(**how))

    return make


@pytest.fixture
def uneven_clip(tmp_path):
    """Write a clip of a variable frame rate, in which every third frame comes late, and return its path."""
    path = tmp_path / "late.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("h264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        at = 0
        for i in range(30):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64), 8 * i, np.uint8), format="gray")
            frame.pts, frame.time_base = at, Fraction(1, 25)
            at += 3 if i % 3 == 2 else 1
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path
