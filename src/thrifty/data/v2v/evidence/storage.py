"""Claims `storage`: what an event stream takes beside the video that it comes from, by threshold."""

from __future__ import annotations

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import clips
from thrifty.bench.evidence import Evidence
from thrifty.data.v2v.report import storage_report
from thrifty.data.v2v.video import probe

THRESHOLDS = (0.1, 0.2, 0.5, 1.0)


def show(ctx: Context, evidence: Evidence) -> None:
    """Add a row a threshold; 150x, which the paper names, should lie among them."""
    ratios: dict[str, list[float]] = {}
    for clip in ("bikes", "carphone", "bigbuckbunny") if ctx.full else ("bikes",):
        path = clips.path(clip)
        rows = storage_report(path, THRESHOLDS, seed=ctx.seed)
        ratios[clip] = [row.event_ratio for row in rows]
        for row in rows:
            metrics = {
                "events": Measurement.of(row.events / 1e6, "million"),
                "stream / video": Measurement.of(row.event_ratio, "x"),
                "voxels / video": Measurement.of(row.voxel_ratio, "x"),
            }
            evidence.row(f"threshold {row.threshold:g}", metrics, workload=f"{clip}, {probe(path).size / 1e6:.2f} MB")
    said = ", ".join(f"{ratio:.0f}x at {c:g}" for c, ratio in zip(THRESHOLDS, ratios["bikes"], strict=True))
    evidence.measured("storage-lowest", Measurement.of(min(ratios["bikes"]), "x"), reason=said)
    evidence.measured("storage-highest", Measurement.of(max(ratios["bikes"]), "x"), reason=said)
    points = {clip: (THRESHOLDS, values) for clip, values in ratios.items()}
    evidence.curves("Event stream over video file", "threshold", "times", points, log_x=True, log_y=True)
