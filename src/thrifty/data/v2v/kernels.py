"""The sensor's step in numba: pixels in tiles that stay in the first cache, all frames of a tile one after another.

Paper: arXiv 2505.16797, section 3.2, steps 1 to 5. Every loop below is branch-free, so that it becomes vector code.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import overload

from thrifty.data.v2v.noise import GOLDEN, M1, M2

#: Pixels of a tile: potential, logarithms of two frames, counts and frame are 28 KB, and stay in the first cache.
TILE = 2048

#: Division as numpy divides: a check for zero in the loop would keep it from becoming vector code.
FAST: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}

#: What is stored of the two polarities.
NET, SPLIT, ABS = 0, 1, 2

#: Fewer pixel steps than this are not worth a second thread.
WORTH_A_THREAD = 1 << 20


def logarithm(table: Any, value: Any) -> Any:
    """Return the logarithm of a grey level from the table; a floating value is one already."""
    return table[value] if isinstance(value, np.integer) else value


@overload(logarithm, inline="always")
def _logarithm(table, value):  # type: ignore[no-untyped-def]
    if isinstance(value, types.Integer):
        return lambda table, value: table[value]
    return lambda table, value: value


@njit(inline="always")
def bits(pixel, key0, key1):  # type: ignore[no-untyped-def]
    """Return a pixel's 32 random bits; the same as ``noise.torch_bits``."""
    x = np.uint32(np.uint32(pixel) * np.uint32(GOLDEN) + key0)
    x ^= x >> np.uint32(16)
    x = np.uint32(x * np.uint32(M1))
    x ^= key1
    x ^= x >> np.uint32(15)
    x = np.uint32(x * np.uint32(M2))
    return x ^ (x >> np.uint32(15))


@njit(**FAST)
def look_up(frame, table, now):  # type: ignore[no-untyped-def]
    """Put the logarithms of a frame into ``now``; a loop of its own, for it gathers and the others do not."""
    for p in range(len(frame)):
        now[p] = logarithm(table, frame[p])


@njit(**FAST)
def advance(v, now, previous):  # type: ignore[no-untyped-def]
    """Step 1: the change of the logarithm goes onto the potential."""
    for p in range(len(v)):
        v[p] = v[p] + (now[p] - previous[p])


@njit(**FAST)
def disturb(begin, v, hot, sigma, shot, up, down, keys, gaussian):  # type: ignore[no-untyped-def]
    """Step 2: background noise, jumps up or down, and drift; ``begin`` is the number of the first pixel."""
    if sigma > 0:
        for p in range(len(v)):
            x = bits(begin + p, keys[0], keys[1])
            g = gaussian[x & np.uint32(0xFFFF)] + gaussian[x >> np.uint32(16)]
            v[p] = v[p] + sigma * g
    if shot > 0:
        for p in range(len(v)):
            x = bits(begin + p, keys[2], keys[3])
            jump = up if x & np.uint32(1) else -down
            v[p] = v[p] + (jump if x >> np.uint32(1) < shot else v.dtype.type(0))
    if hot.size:
        for p in range(len(v)):
            v[p] = v[p] + hot[p]


@njit(inline="always")
def settle(x, c_pos, c_neg):  # type: ignore[no-untyped-def]
    """Steps 3 and 4: return what is left of a potential, in (-c_neg, c_pos), and the whole thresholds it crossed."""
    one, none = np.float32(1), np.float32(0)
    c = c_pos if x >= none else c_neg
    n = np.trunc(x / c)
    x = x - n * c
    up = x >= c_pos  # the product above may be rounded down, by a unit in the last place
    down = x <= -c_neg
    n = n + (one if up else none) - (one if down else none)
    x = x - c_pos if up else x
    return (x + c_neg if down else x), n


@njit(**FAST)
def fire(v, c_pos, c_neg, count):  # type: ignore[no-untyped-def]
    """Take steps 3 and 4."""
    for p in range(len(v)):
        v[p], count[p] = settle(v[p], c_pos, c_neg)


@njit(**FAST)
def advance_and_fire(v, now, previous, c_pos, c_neg, count):  # type: ignore[no-untyped-def]
    """Take steps 1, 3 and 4 in one pass, where nothing disturbs."""
    for p in range(len(v)):
        v[p], count[p] = settle(v[p] + (now[p] - previous[p]), c_pos, c_neg)


@njit(**FAST)
def store(count, out, polarity, fresh):  # type: ignore[no-untyped-def]
    """Step 5: put counts into a bin (``fresh``: its first ones), or add them to it."""
    none = count.dtype.type(0)
    if polarity == SPLIT:
        for channel, sign in ((0, 1), (1, -1)):
            for p in range(len(count)):
                kept = max(sign * count[p], none)
                out[channel, p] = kept if fresh else out[channel, p] + kept
    elif polarity == ABS:
        for p in range(len(count)):
            out[0, p] = abs(count[p]) if fresh else out[0, p] + abs(count[p])
    elif fresh:
        for p in range(len(count)):
            out[0, p] = count[p]
    else:
        for p in range(len(count)):
            out[0, p] = out[0, p] + count[p]


@njit(**FAST)
def cut(count, limit):  # type: ignore[no-untyped-def]
    """Cut counts at the limit; returns how many were beyond it."""
    beyond = np.int32(0)
    for p in range(len(count)):
        kept = min(max(count[p], -limit), limit)
        beyond += np.int32(kept != count[p])
        count[p] = kept
    return beyond


@njit(**FAST)
def count_events(  # type: ignore[no-untyped-def]
    begin, end, frames, table, v, previous, hot, c_pos, c_neg, sigma, shot, keys, gaussian, out, per_bin, polarity,
    external, limit,
):  # fmt: skip
    """Run some pixels of one item through all frames.

    Args:
        begin: First pixel.
        end: The pixel after the last.
        frames: (intervals, pixels), the frame at the end of every interval.
        table: Logarithms of grey levels; unused where frames hold logarithms.
        v: Potential (pixels), updated.
        previous: Logarithm of the last frame (pixels), updated.
        hot: Drift (pixels), or empty.
        c_pos: Positive threshold.
        c_neg: Negative threshold.
        sigma: Noise a frame.
        shot: How many of 2**31 frames a pixel jumps in.
        keys: (intervals, 4), of the noise and of the jumps.
        gaussian: Quantiles.
        out: (bins, 1 or 2, pixels), filled.
        per_bin: Intervals of a bin.
        polarity: ``NET``, ``SPLIT`` or ``ABS``.
        external: Add noise to the counts, not to the potential.
        limit: Counts beyond it are cut; infinite for none.

    Returns:
        How many counts were cut at the limit.
    """
    room = np.empty((3, TILE), v.dtype)
    beyond = 0
    quiet = sigma == 0 and shot == 0 and hot.size == 0
    one = v.dtype.type(1)
    direct = polarity == NET and per_bin == 1 and not (external or limit < np.inf)
    for first in range(begin, end, TILE):
        last = min(first + TILE, end)
        count, now, before = room[0, : last - first], room[1, : last - first], room[2, : last - first]
        tile, drift = v[first:last], hot[first:last] if hot.size else hot
        before[:] = previous[first:last]
        for i in range(len(frames)):
            look_up(frames[i, first:last], table, now)
            if quiet and direct:
                advance_and_fire(tile, now, before, c_pos, c_neg, out[i, 0, first:last])
            elif quiet:
                advance_and_fire(tile, now, before, c_pos, c_neg, count)
            else:
                advance(tile, now, before)
                if not external:
                    disturb(first, tile, drift, sigma, shot, c_pos, c_neg, keys[i], gaussian)
                fire(tile, c_pos, c_neg, count)
                if external:
                    disturb(first, count, drift, sigma, shot, one, one, keys[i], gaussian)
            now, before = before, now
            if limit < np.inf:
                beyond += cut(count, limit)
            if not (quiet and direct):
                store(count, out[i // per_bin, :, first:last], polarity, i % per_bin == 0)
        previous[first:last] = before
    return beyond


@njit(**FAST)
def interpolate_events(  # type: ignore[no-untyped-def]
    begin, end, frames, table, v, previous, hot, c_pos, c_neg, sigma, shot, keys, gaussian, out, per_voxel, bins
):
    """Run some pixels through all frames; every event is shared by the two bins nearest to its time.

    The potential moves in a straight line between two frames, so the time of an event is known. Arguments as in
    :func:`count_events`; ``per_voxel`` intervals are a voxel of ``bins`` bins, ``out`` is (voxels x bins, pixels).
    """
    count, before, now = np.empty(TILE, v.dtype), np.empty(TILE, v.dtype), np.empty(TILE, v.dtype)
    step = (bins - 1) / per_voxel
    for first in range(begin, end, TILE):
        last = min(first + TILE, end)
        tile, drift = v[first:last], hot[first:last] if hot.size else hot
        for i in range(len(frames)):
            before[: last - first] = tile
            look_up(frames[i, first:last], table, now)
            advance(tile, now, previous[first:last])
            previous[first:last] = now[: last - first]
            disturb(first, tile, drift, sigma, shot, c_pos, c_neg, keys[i], gaussian)
            reached = tile.copy()
            fire(tile, c_pos, c_neg, count)
            voxel, within = i // per_voxel * bins, i % per_voxel
            for q in range(last - first):
                n = int(count[q])
                sign, c = (1, c_pos) if n > 0 else (-1, c_neg)
                for k in range(1, abs(n) + 1):
                    share = (sign * k * c - before[q]) / (reached[q] - before[q])
                    at = min(max((within + share) * step, 0.0), bins - 1.0)
                    low = min(int(at), bins - 2) if bins > 1 else 0
                    weight = at - low if bins > 1 else 0.0
                    out[voxel + low, first + q] += sign * (1 - weight)
                    if bins > 1:
                        out[voxel + low + 1, first + q] += sign * weight


@njit(**FAST)
def list_events(frames, table, v, previous, hot, c_pos, c_neg, sigma, shot, keys, gaussian):  # type: ignore[no-untyped-def]
    """Run all pixels through all frames and list every event.

    Returns:
        Interval, pixel, polarity (1 or -1) and place within the interval (in (0, 1]) of every event, by interval and
        pixel.
    """
    pixels = len(v)
    room = max(1024, pixels)
    interval, pixel = np.empty(room, np.int32), np.empty(room, np.int64)
    polarity, share = np.empty(room, np.int8), np.empty(room, np.float64)
    count, now = np.empty(TILE, v.dtype), np.empty(TILE, v.dtype)
    before, reached = np.empty(pixels, v.dtype), np.empty(pixels, v.dtype)
    used = 0
    for i in range(len(frames)):
        for first in range(0, pixels, TILE):
            last = min(first + TILE, pixels)
            tile, drift = v[first:last], hot[first:last] if hot.size else hot
            before[first:last] = tile
            look_up(frames[i, first:last], table, now)
            advance(tile, now, previous[first:last])
            previous[first:last] = now[: last - first]
            disturb(first, tile, drift, sigma, shot, c_pos, c_neg, keys[i], gaussian)
            reached[first:last] = tile
            fire(tile, c_pos, c_neg, count)
            for p in range(first, last):
                n = int(count[p - first])
                while used + abs(n) > room:
                    interval, pixel = _twice(interval), _twice(pixel)
                    polarity, share = _twice(polarity), _twice(share)
                    room *= 2
                sign, c = (1, c_pos) if n > 0 else (-1, c_neg)
                for k in range(1, abs(n) + 1):
                    place = (sign * k * c - before[p]) / (reached[p] - before[p])
                    interval[used], pixel[used], polarity[used] = i, p, sign
                    share[used] = min(max(place, 0.0), 1.0)
                    used += 1
    return interval[:used], pixel[:used], polarity[:used], share[:used]


@njit(**FAST)
def _twice(array):  # type: ignore[no-untyped-def]
    larger = np.empty(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger


@njit(**FAST)
def uniform_start(v, keys, c_pos, c_neg, low, high, triangular):  # type: ignore[no-untyped-def]
    """Fill in the first potential: uniform on (-c_neg, c_pos), or a triangle that peaks at 0."""
    for p in range(len(v)):
        u = (np.float64(bits(p, keys[0], keys[1]) >> np.uint32(8)) + 0.5) * 2.0**-24
        if triangular:
            rising = np.sqrt(u * c_neg * (c_pos + c_neg)) - c_neg
            x = rising if rising < 0 else c_pos - np.sqrt((1 - u) * c_pos * (c_pos + c_neg))
        else:
            x = u * (c_pos + c_neg) - c_neg
        v[p] = min(max(v.dtype.type(x), low), high)


def over_pixels(call: Callable[[int, int, int], Any], items: int, pixels: int, intervals: int) -> list[Any]:
    """Call ``call(item, begin, end)`` over all pixels of all items, in as many threads as torch may use.

    What is computed does not depend on how it was cut up.
    """
    threads = min(torch.get_num_threads(), 1 + items * pixels * intervals // WORTH_A_THREAD)
    if threads == 1:
        return [call(item, 0, pixels) for item in range(items)]
    pieces = -(-threads // items) if items < threads else 1
    size = -(-pixels // pieces // TILE) * TILE
    jobs = [(item, at, min(at + size, pixels)) for item in range(items) for at in range(0, pixels, size)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda job: call(*job), jobs))
