"""What others published, from configurations alone."""

from thrifty.advise.evidence import published


def test_points_are_within_15_per_cent():
    """All but one recipe of ALST's, which takes more than its arithmetic."""
    found = list(published.points(("qwen3-8b",)))
    assert len([point for point in found if point.on_gpu]) >= 10
    off = {point.what: point.predicted() / point.published - 1 for point in found}
    recipe = off.pop("Llama-3.1-8B, 65000 tokens, optimizer and weights on the host")
    assert max(abs(share) for share in off.values()) <= 0.15, off
    assert -0.18 < recipe < -0.15


def test_streaming_by_the_authors_code_is_foretold_within_2_per_cent():
    found = [point for point in published.points(()) if "code" in point.what]
    off = {point.what: point.predicted() / point.published - 1 for point in found}
    assert len(off) == 4
    assert max(abs(share) for share in off.values()) <= 0.02, off


def test_speed_ups_are_no_bytes_and_come_in_order():
    found = list(published.speed_ups())
    best = max(found, key=lambda point: point.published)
    assert best.published == 2.29
    assert best.predicted() == max(point.predicted() for point in found)
