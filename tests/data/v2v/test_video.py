"""Files: exact frames, short and corrupt ones, uneven times, and a list that stays small."""

import sys
from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch

from thrifty.data.v2v.index import VideoIndex
from thrifty.data.v2v.video import VideoError, content_key, probe, read_frames, timestamps, video_files, write_video


def test_a_part_of_a_video_is_that_part(clip):
    """H.264 has few key frames; every start must give what decoding from the beginning gives."""
    path = clip(frames=60)
    whole = read_frames(path)
    assert whole.shape == (60, 48, 64)
    for start in (0, 1, 13, 37, 58):
        assert (read_frames(path, start, 2) == whole[start : start + 2]).all()
    assert (read_frames(path, 5, 3, window=(4, 8, 16, 20)) == whole[5:8, 4:20, 8:28]).all()
    info = probe(path)
    assert (info.frames, info.height, info.width, info.rate, info.uneven) == (60, 48, 64, 25.0, 0.0)
    assert timestamps(path)[[0, 1, 59]].tolist() == pytest.approx([0, 40_000, 59 * 40_000])


def test_full_range_expands_limited_luma(clip):
    path = clip()
    plain, full = read_frames(path), read_frames(path, full_range=True)
    expected = np.rint(np.clip((plain.astype(float) - 16) / 219, 0, 1) * 255)
    assert (full == expected).all()
    assert (plain != full).any()


def test_colour_is_written_and_read(tmp_path):
    colour = np.zeros((3, 33, 48, 3), np.uint8)
    colour[:, :, :24, 0] = 200
    path = write_video(tmp_path / "colour.mp4", colour)
    assert read_frames(path).shape == (3, 32, 48), "an odd row is cut off"


@pytest.mark.parametrize(
    ("suffix", "codec", "options"),
    [
        (".avi", "mpeg4", {"bf": "2", "g": "12"}),
        (".avi", "libx264", {"bf": "3", "g": "10"}),
        (".mp4", "libx264", {"bf": "3", "g": "10", "x264-params": "open-gop=1:keyint=10:min-keyint=10:scenecut=0"}),
        (".ts", "libx264", {"bf": "2", "g": "10"}),
        (".mpg", "mpeg2video", {"bf": "2", "g": "10"}),
    ],
)
def test_any_start_is_the_frame_of_a_whole_decode(tmp_path, suffix, codec, options):
    path = tmp_path / f"clip{suffix}"
    rng = np.random.default_rng(0)
    scene = rng.integers(0, 256, (64, 160), dtype=np.uint8).repeat(2, 0)[:64]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for at in range(40):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(scene[:, at : at + 96]), format="gray")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with av.open(str(path)) as container:
        whole = [frame.to_ndarray()[:64, :96] for frame in container.decode(video=0)]
    assert len(read_frames(path)) == len(whole) == 40
    for start in range(40):
        np.testing.assert_array_equal(read_frames(path, start, 1)[0], whole[start], err_msg=str(start))


def test_ten_bits_are_read_as_eight(tmp_path):
    path = tmp_path / "deep.mkv"
    levels = np.full((64, 64), 600, np.uint16)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p10le"
        for _ in range(3):
            frame = av.VideoFrame(64, 64, "yuv420p10le")
            frame.planes[0].update(levels.tobytes())
            for plane in frame.planes[1:]:
                plane.update(np.full((32, 32), 512, np.uint16).tobytes())
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert (read_frames(path) == 150).all()
    assert (read_frames(path, full_range=True) == round((150 - 16) / 219 * 255)).all()


def test_more_frames_than_there_are(clip):
    path = clip(frames=10)
    with pytest.raises(VideoError, match=r"clip.mp4: expected 5 frames from frame 7 on, got 10 in all"):
        read_frames(path, 7, 5)
    with pytest.raises(VideoError, match=r"a window of \(40, 0, 16, 16\) does not fit into 48 x 64"):
        read_frames(path, 0, 1, window=(40, 0, 16, 16))
    with pytest.raises(ValueError, match="start: expected"):
        read_frames(path, -1)


def corrupt(path, at=0.5):
    """Overwrite the middle of a file, behind its header."""
    content = bytearray(path.read_bytes())
    begin = int(len(content) * at)
    content[begin : begin + len(content) // 3] = bytes(len(content) // 3)
    path.write_bytes(bytes(content))
    return path


def test_files_that_are_no_videos(tmp_path, clip):
    nonsense = tmp_path / "nonsense.mp4"
    nonsense.write_bytes(b"not a video at all" * 100)
    with pytest.raises(VideoError, match="nonsense.mp4: it cannot be opened"):
        probe(nonsense)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_frames(tmp_path / "absent.mp4")
    cut = clip("cut.mp4", frames=60)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    with pytest.raises(VideoError, match="cut.mp4"):
        read_frames(cut)


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_a_file_that_ends_before_its_header_says_is_no_shorter_video(tmp_path, clip, suffix):
    """Its packets can be read up to the cut, and nothing else tells."""
    whole, path = clip("whole.mp4", frames=60), tmp_path / f"cut{suffix}"
    options = {"movflags": "faststart"} if suffix == ".mp4" else {}
    with av.open(str(whole)) as source, av.open(str(path), "w", options=options) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    assert probe(path).frames == 60
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    with pytest.raises(VideoError, match=r"cut\.m.*: it is cut off: expected 2.40 s, as its header says, got"):
        probe(path)


def test_pauses_are_told_by_their_time(tmp_path):
    """Four frames of a hundred are late, by a second each."""
    path = tmp_path / "frozen.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("h264", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        at = 0
        for i in range(300):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64), i % 200, np.uint8), format="gray")
            frame.pts, frame.time_base = at, Fraction(1, 25)
            at += 25 if i % 75 == 74 else 1
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert 0.2 < probe(path).uneven < 0.3


class Decoder:
    """What is used of torchcodec's ``VideoDecoder``, over PyAV."""

    def __init__(self, source, *, dimension_order, num_ffmpeg_threads):
        assert dimension_order == "NHWC"
        try:
            with av.open(source) as container:
                self.frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        except av.error.FFmpegError as error:
            raise ValueError(str(error)) from None

    def __len__(self):
        return len(self.frames)

    def get_frames_in_range(self, start, stop):
        assert 0 <= start < stop <= len(self)
        return SimpleNamespace(data=torch.from_numpy(np.stack(self.frames[start:stop])))


@pytest.mark.parametrize("reader", ["opencv", "torchcodec"])
def test_other_readers_give_the_same_frames(clip, reader, monkeypatch):
    pytest.importorskip("cv2")
    monkeypatch.setitem(sys.modules, "torchcodec", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", SimpleNamespace(VideoDecoder=Decoder))
    path = clip(frames=45)
    ours = read_frames(path, full_range=True)
    for start, count in ((0, None), (3, 40), (44, 1)):
        theirs = read_frames(path, start, count, full_range=True, reader=reader)
        expected = ours[start : None if count is None else start + count]
        assert theirs.shape == expected.shape
        assert np.abs(theirs.astype(int) - expected).max() <= 2, "their way over RGB rounds twice"
    with pytest.raises(VideoError, match="got"):
        read_frames(path, 40, 10, full_range=True, reader=reader)
    with pytest.raises(ValueError, match="expected full_range=True"):
        read_frames(path, reader=reader)
    nonsense = path.with_name("nonsense.mp4")
    nonsense.write_bytes(b"not a video")
    with pytest.raises(VideoError, match="nonsense"):
        read_frames(nonsense, full_range=True, reader=reader)


def test_a_reader_that_is_not_there_says_what_to_install(clip, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    with pytest.raises(ImportError, match="pip install torchcodec"):
        read_frames(clip(), full_range=True, reader="torchcodec")
    with pytest.raises(ValueError, match="reader"):
        read_frames(clip(), reader="imageio")


def test_content_has_one_name_wherever_it_lies(clip, tmp_path):
    path = clip("a.mp4")
    other = tmp_path / "there" / "b.mp4"
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    assert (
        content_key(str(path)) == content_key(str(other)) == content_key(str(other.parent / ".." / "there" / "b.mp4"))
    )
    assert content_key(str(path)) != content_key(str(clip("c.mp4", seed=1)))


def test_a_sound_file_has_no_pictures(tmp_path):
    with av.open(str(tmp_path / "sound.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    with pytest.raises(VideoError, match="expected a video stream, got none"):
        probe(tmp_path / "sound.mkv")


def test_a_list_stays_small_and_warns_of_what_it_finds(tmp_path, clip, uneven_clip):
    good, late, bad = clip("good.mp4"), uneven_clip, tmp_path / "bad.mp4"
    bad.write_bytes(b"nothing")
    with pytest.warns(UserWarning, match=r"left out|uneven") as caught:
        index, left_out = VideoIndex.scan([good, late, bad])
    said = " ".join(str(warning.message) for warning in caught)
    assert "left out" in said
    assert "bad.mp4" in said
    assert "late.mp4: 57% of its frame intervals, or of its time, are uneven" in said
    assert left_out == [str(bad)]
    assert [index.path(i) for i in range(2)] == [str(good), str(late)]
    saved = VideoIndex.load(index.save(tmp_path / "index.npz"))
    assert saved.path(1) == str(late)
    assert saved.frames.tolist() == [31, 30]
    with pytest.raises(FileExistsError):
        index.save(tmp_path / "index.npz")
    with pytest.raises(VideoError, match="bad.mp4"):
        VideoIndex.scan([bad], on_error="raise")
    with pytest.warns(UserWarning, match="left out"), pytest.raises(VideoError, match="got none of 1"):
        VideoIndex.scan([bad])
    many = VideoIndex([f"/videos/{i:06d}.mp4" for i in range(10_000)], [300] * 10_000, [(336, 596)] * 10_000)
    assert many.nbytes < 400_000
    assert many.path(9_999) == "/videos/009999.mp4"


def test_what_a_list_may_be(tmp_path, clip):
    one, two = clip("one.mp4", frames=3), clip("two.mp4", frames=3)
    (tmp_path / "list.txt").write_text("# ours\none.mp4\ntwo.mp4\n")
    expected = [str(one), str(two)]
    assert video_files(tmp_path) == video_files(tmp_path / "list.txt") == video_files([one, two]) == expected
    with pytest.raises(FileNotFoundError, match=r"absent.mp4"):
        video_files(tmp_path / "absent.mp4")
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    with pytest.raises(ValueError, match="expected an index of videos, got x"):
        VideoIndex.load(tmp_path / "other.npz")
