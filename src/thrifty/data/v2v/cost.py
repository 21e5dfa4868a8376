"""What making voxel grids from video changes in a workload, for the adviser: bytes of stored training data."""

from __future__ import annotations

from thrifty._common.ledger import Entry, LedgerDelta, Resource, Task, Workload

#: The ratio of float32 voxel grids to H.264 video that a clip of 640 x 272 showed; streams depend on the threshold.
VOXELS_OVER_VIDEO = 335


def predict(workload: Workload) -> LedgerDelta:
    """Predict how many bytes need not be stored.

    Args:
        workload: ``"image-model training"`` with ``representation="events"``, ``frames`` (of video), and optionally
            ``height`` (128), ``width`` (128), ``bytes_a_number`` (4) and ``video_bytes`` (what the video takes; else a
            335th of the voxel grids).

    Returns:
        Stored data, as a change: the video stays, stored voxel grids go.

    Raises:
        ValueError: ``frames`` is missing, or a fact is not a number.

    Example:
        >>> facts = {"representation": "events", "frames": 250, "height": 272, "width": 640}
        >>> round(-predict(Workload("image-model training", facts)).total(Resource.DATA) / 1e6)
        174
    """
    if workload.task != Task.IMAGE_TRAINING or workload.facts.get("representation") != "events":
        return LedgerDelta.not_applicable("it makes training data of event cameras; this workload does not use any")
    height, width = workload.number("height", 128), workload.number("width", 128)
    voxels = workload.number("frames") * height * width * workload.number("bytes_a_number", 4)
    video = workload.number("video_bytes", voxels / VOXELS_OVER_VIDEO)
    formula = "video_bytes - frames x height x width x bytes_a_number"
    return LedgerDelta(
        (Entry(Resource.DATA, video - voxels, formula, "one float map a frame interval; arXiv 2505.16797, section 1"),),
        preconditions=("the network reads voxel grids of event counts", "the video shows what events would come from"),
        price=("decoding the video in every epoch",),
    )
