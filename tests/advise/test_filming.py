"""A folder of videos for event vision leads to the method that stores no voxel grids."""

import json

import numpy as np
import pytest

pytest.importorskip("av")

from thrifty.advise import advise_videos
from thrifty.data.v2v.video import write_video


def test_a_folder_of_videos_leads_to_v2v(tmp_path, thrifty):
    sizes = [(31, 64, 64), (21, 32, 48)]
    paths = [write_video(tmp_path / f"{i}.mp4", np.zeros(size, np.uint8)) for i, size in enumerate(sizes)]
    advice = advise_videos(tmp_path)
    assert advice.best.method == "v2v"
    assert [offer.method for offer in advice.offers if offer.applies] == ["v2v"]
    stored = 4 * sum(frames * height * width for frames, height, width in sizes)
    assert advice.account.parts[0].amount == stored
    video = sum(path.stat().st_size for path in paths)
    assert advice.best.saving == pytest.approx(1 - video / stored)
    ran = thrifty("advise", "video", tmp_path, "--json")
    assert ran.code == 0
    assert "v2v" in json.dumps(json.loads(ran.out))
    assert "v2v" in thrifty("advise", "video", tmp_path).out
    (tmp_path / "bad.mp4").write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="left out"):
        assert advise_videos([tmp_path]).best.method == "v2v"
