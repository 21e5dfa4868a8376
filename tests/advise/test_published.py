"""What others published, from configurations alone."""

from thrifty.advise.evidence import published


def test_points_are_within_15_per_cent():
    """All but the length at which the authors' streaming, which holds more than ours, filled its device."""
    found = list(published.points(("qwen3-8b",)))
    assert len([point for point in found if point.on_gpu]) >= 10
    off = {point.what: point.predicted() / point.published - 1 for point in found}
    theirs = off.pop("qwen3-8b, LoRA 32, full at 142400 tokens, StreamBP")
    assert max(abs(share) for share in off.values()) <= 0.15, off
    assert -0.25 < theirs < 0
