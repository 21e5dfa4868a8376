"""Claim `corpus`: a list of 10 000 videos costs a loader no memory, and an epoch goes on where it was left."""

from __future__ import annotations

from thrifty.bench import memory
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import clips
from thrifty.bench.evidence import Evidence
from thrifty.data.v2v import Augmentation, VideoIndex, VideoVoxelDataset
from thrifty.data.v2v.loading import enter_epoch, make_loader
from thrifty.data.v2v.video import probe

LONG, SHORT, READ = 10_000, 100, 150


def show(ctx: Context, evidence: Evidence) -> None:
    """Measure, in fresh processes, how much a loader grows with a short and with a long list."""
    path = str(clips.path("carphone"))
    peaks = {}
    for entries in (SHORT, LONG):
        ctx.progress(0, 2, f"a list of {entries} videos")
        runs = 3 if ctx.full else 1
        found = [memory.resident_peak(f"{__name__}:read", path, entries, READ) / 1e6 for _ in range(runs)]
        peaks[entries] = Measurement.of(found, "MB")
        evidence.row(f"{entries:,} videos", {"growth": peaks[entries]}, workload=f"{READ} samples read")
    differing = resumed_differ(path)
    evidence.measured(
        "corpus", peaks[LONG].minus(peaks[SHORT]), gate=float(differing),
        reason=f"resumed in the middle of an epoch, {differing} samples differ",
    )  # fmt: skip


def samples(path: str, entries: int) -> VideoVoxelDataset:
    """Return a data set over a list that names one clip many times."""
    info = probe(path)
    # as long as the paths of a corpus are, and all different
    padded = [f"{path[: path.rindex('/')]}/{'./' * (1 + i % 20)}{path.rpartition('/')[2]}" for i in range(entries)]
    index = VideoIndex(padded, [info.frames] * entries, [(info.height, info.width)] * entries)
    return VideoVoxelDataset(index, sequence_length=4, crop=64, max_per_video=1, augmentation=Augmentation())


def read(path: str, entries: int, count: int) -> int:
    """Read samples from a list, as a worker would."""
    data = samples(path, entries)
    loader, _ = make_loader(data, 2)
    seen = 0
    for batch in loader:
        seen += len(batch["voxels"])
        if seen >= count:
            break
    return seen


def resumed_differ(path: str) -> int:
    """Return how many samples of an epoch that was left in the middle differ from those of a whole one."""
    data = samples(path, 12)
    loader, sampler = make_loader(data, 2)
    enter_epoch(data, sampler, 3)
    whole = list(loader)
    again = samples(path, 12)
    loader, sampler = make_loader(again, 2)
    enter_epoch(again, sampler, 3, position=6)
    pairs = zip(whole[3:], loader, strict=True)
    return sum(int((a["voxels"] != b["voxels"]).any() or (a["frames"] != b["frames"]).any()) for a, b in pairs)
