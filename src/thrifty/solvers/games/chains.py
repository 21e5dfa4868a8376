"""The law over paths as a Markov chain on a graph: compiled kernels.

Allocations, subsets and routes are all paths from the first to the last node of an acyclic graph whose edges carry
coordinates. Multiplicative weights over the paths is then a Markov chain: with K[u] the weighted number of paths from u
to the end, a path at u takes edge e = (u, v) with probability w_e K[v] / K[u]. First moment, second moment and samples
need those probabilities alone, and no subtraction, so none of them cancels. K is built in the log domain, or in the
linear one where a test of the range says that nothing can underflow.

Source: the kernels of Takimoto and Warmuth (2003) and of the paper's sections, in one form.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: How far the logarithms of weights of whole actions may lie apart in the linear domain (float64 ends near 708).
LINEAR_RANGE = 600.0


@njit(cache=True)
def log_chain(first: Ints, head: Ints, label: Ints, theta: Floats, step: Floats) -> float:
    """Fill ``step`` with the chain's probabilities, edge by edge, in the log domain; return log K.

    Args:
        first: Out-edges of node u are ``first[u]`` to ``first[u + 1]``; nodes are in topological order.
        head: Where each edge goes.
        label: The coordinate that it carries; negative: none.
        theta: Log weights.
        step: Filled.
    """
    nodes = first.size - 1
    value = np.zeros(nodes)
    for u in range(nodes - 2, -1, -1):
        top = -math.inf
        for e in range(first[u], first[u + 1]):
            here = value[head[e]]
            if label[e] >= 0:
                here += theta[label[e]]
            step[e] = here
            top = max(top, here)
        if top == -math.inf:
            value[u] = top
            for e in range(first[u], first[u + 1]):
                step[e] = 0.0
            continue
        total = 0.0
        for e in range(first[u], first[u + 1]):
            step[e] = math.exp(step[e] - top)
            total += step[e]
        for e in range(first[u], first[u + 1]):
            step[e] /= total
        value[u] = top + math.log(total)
    return float(value[0])


@njit(cache=True)
def linear_chain(first: Ints, head: Ints, slot: Ints, weight: Floats, step: Floats) -> float:
    """Fill ``step`` likewise from weights, one a slot; return log K. :func:`slot_weights` says when."""
    nodes = first.size - 1
    ways = np.zeros(nodes)
    ways[nodes - 1] = 1.0
    for u in range(nodes - 2, -1, -1):
        total = 0.0
        for e in range(first[u], first[u + 1]):
            step[e] = weight[slot[e]] * ways[head[e]]
            total += step[e]
        ways[u] = total
        if total > 0.0:
            share = 1.0 / total
            for e in range(first[u], first[u + 1]):
                step[e] *= share
    return float(math.log(ways[0])) if ways[0] > 0.0 else -math.inf


@njit(cache=True)
def slot_weights(letters: Ints, theta: Floats, total: int, weight: Floats) -> tuple[bool, float]:
    """Fill ``weight`` where the linear domain is safe, and tell so, with what log K lacks.

    Subtracting a constant from a row, or a multiple of s from all, changes no law (rows take s units, which sum to
    ``total``), so both are taken out before the range is judged.

    Args:
        letters: Row h, column s: the coordinate of s units in row h; -1: free of charge; below: not allowed.
        theta: Log weights.
        total: Of the units.
        weight: Filled, row by row.
    """
    rows, columns = letters.shape
    rise, run = 0.0, 0.0
    for h in range(rows):
        low, high, at_low, at_high = -1, -1, 0.0, 0.0
        for s in range(columns):
            if letters[h, s] >= -1:
                here = theta[letters[h, s]] if letters[h, s] >= 0 else 0.0
                if here > -math.inf:
                    if low < 0:
                        low, at_low = s, here
                    high, at_high = s, here
        rise += at_high - at_low
        run += high - low
    tilt = rise / run if run > 0 else 0.0
    spread, shift = 0.0, tilt * total
    for h in range(rows):
        low_value, high_value = math.inf, -math.inf
        for s in range(columns):
            at = h * columns + s
            weight[at] = -math.inf
            if letters[h, s] >= -1:
                weight[at] = (theta[letters[h, s]] if letters[h, s] >= 0 else 0.0) - tilt * s
                if weight[at] > -math.inf:
                    low_value, high_value = min(low_value, weight[at]), max(high_value, weight[at])
        if high_value == -math.inf:
            return False, 0.0
        spread += high_value - low_value
        shift += high_value
        if not spread <= LINEAR_RANGE:
            return False, 0.0
        for s in range(columns):
            weight[h * columns + s] = math.exp(weight[h * columns + s] - high_value)
    return True, shift


@njit(cache=True)
def chain(
    first: Ints, head: Ints, label: Ints, slot: Ints, letters: Ints, total: int, theta: Floats, step: Floats,
    weight: Floats,
) -> tuple[float, bool]:  # fmt: skip
    """Fill ``step`` in the domain that the range allows; return log K and whether it was the linear one."""
    if letters.size > 0:
        safe, shift = slot_weights(letters, theta, total, weight)
        if safe:
            return shift + linear_chain(first, head, slot, weight, step), True
    return log_chain(first, head, label, theta, step), False


@njit(cache=True)
def first_moment(first: Ints, head: Ints, label: Ints, step: Floats, reach: Floats, x: Floats) -> None:
    """Fill ``x`` with the probability of each coordinate, and ``reach`` with that of each node."""
    reach[:] = 0.0
    x[:] = 0.0
    reach[0] = 1.0
    for u in range(first.size - 2):
        for e in range(first[u], first[u + 1]):
            passes = reach[u] * step[e]
            reach[head[e]] += passes
            if label[e] >= 0:
                x[label[e]] += passes


@njit(cache=True)
def walk(first: Ints, head: Ints, label: Ints, step: Floats, uniforms: Floats, taken: Ints) -> int:
    """Fill ``taken`` with the coordinates of one path, drawn by one uniform number a step; return how many they are."""
    node, draws, count, end = 0, 0, 0, first.size - 2
    while node != end:
        left, chosen = uniforms[draws], -1
        draws += 1
        for e in range(first[node], first[node + 1]):
            if step[e] > 0.0:
                chosen = e  # the last possible edge catches what rounding leaves
                left -= step[e]
                if left < 0.0:
                    break
        if label[chosen] >= 0:
            taken[count] = label[chosen]
            count += 1
        node = head[chosen]
    return count


@njit(cache=True)
def second_moment(first: Ints, head: Ints, label: Ints, step: Floats, reach: Floats, sigma: Floats) -> None:
    """Fill ``sigma`` with the probability of each pair of coordinates, for any graph: O(nodes · edges).

    From every node a the chain is followed to the end; a path that came to a by edge e then takes f with probability
    (visits of f's tail from a) · step[f].
    """
    nodes, d = first.size - 1, sigma.shape[0]
    sigma[:, :] = 0.0
    visits, later = np.empty(nodes), np.empty(d)
    came = np.zeros((nodes, d))  # probability of coming to a node by a coordinate
    for u in range(nodes - 1):
        for e in range(first[u], first[u + 1]):
            if label[e] >= 0:
                passes = reach[u] * step[e]
                came[head[e], label[e]] += passes
                sigma[label[e], label[e]] += passes
    for a in range(1, nodes - 1):
        if reach[a] == 0.0:
            continue
        visits[a:] = 0.0
        visits[a] = 1.0
        later[:] = 0.0
        for u in range(a, nodes - 1):
            if visits[u] == 0.0:
                continue
            for e in range(first[u], first[u + 1]):
                passes = visits[u] * step[e]
                visits[head[e]] += passes
                if label[e] >= 0:
                    later[label[e]] += passes
        for i in range(d):
            if came[a, i] > 0.0:
                for j in range(d):
                    sigma[i, j] += came[a, i] * later[j]
    for i in range(d):  # a coordinate comes once a path, so of (i, j) and (j, i) each path fills one
        for j in range(i):
            both = sigma[i, j] + sigma[j, i]
            sigma[i, j] = both
            sigma[j, i] = both


@njit(cache=True)
def allocation_second_moment(letters: Ints, weight: Floats, total: int, sigma: Floats) -> None:
    """Fill ``sigma`` for allocations, in the linear domain: prefixes, suffixes and what lies between two rows.

    The cost is that of the output, O(rows² · columns²), where the general form has a factor ``columns`` more.
    """
    rows, columns = letters.shape
    w = weight.reshape(rows, columns)
    before, behind = np.zeros((rows + 1, total + 1)), np.zeros((rows + 1, total + 1))
    before[0, 0] = 1.0
    behind[rows, 0] = 1.0
    for h in range(rows):
        _convolve(w[h], before[h], before[h + 1])
        _convolve(w[rows - 1 - h], behind[rows - h], behind[rows - 1 - h])
    share = 1.0 / before[rows, total]
    sigma[:, :] = 0.0
    between, further, rest = np.empty(total + 1), np.empty(total + 1), np.empty(total + 1)
    least, most = np.zeros(rows, np.int64), np.full(rows, -1)
    for h in range(rows):
        for s in range(columns):
            if letters[h, s] >= 0:
                if most[h] < 0:
                    least[h] = s
                most[h] = s
    for h in range(rows):
        if most[h] < 0:
            continue
        between[:] = before[h]
        for g in range(h + 1, rows):
            if most[g] >= 0:
                for left in range(max(0, total - most[h] - most[g]), total - least[h] - least[g] + 1):
                    ways = 0.0
                    for y in range(left + 1):
                        ways += between[y] * behind[g + 1, left - y]
                    rest[left] = ways * share
                for s in range(least[h], most[h] + 1):
                    i = letters[h, s]
                    if i < 0:
                        continue
                    for t in range(least[g], min(most[g], total - s) + 1):
                        j = letters[g, t]
                        if j >= 0:
                            both = w[h, s] * w[g, t] * rest[total - s - t]
                            sigma[i, j] = both
                            sigma[j, i] = both
            _convolve(w[g], between, further)
            between[:] = further
    for h in range(rows):
        for s in range(columns):
            if letters[h, s] >= 0:
                alone = 0.0
                for y in range(total - s + 1):
                    alone += before[h, y] * behind[h + 1, total - s - y]
                sigma[letters[h, s], letters[h, s]] = w[h, s] * alone * share


@njit(cache=True)
def _convolve(row: Floats, ways: Floats, out: Floats) -> None:
    out[:] = 0.0
    for s in range(min(row.size, ways.size)):
        if row[s] > 0.0:
            for y in range(ways.size - s):
                out[y + s] += row[s] * ways[y]


@njit(cache=True)
def cheapest(first: Ints, head: Ints, label: Ints, loss: Floats, taken: Ints) -> tuple[float, int]:
    """Fill ``taken`` with the path of least loss (losses may be negative); return its loss and its length."""
    nodes = first.size - 1
    cost = np.zeros(nodes)
    best = np.zeros(nodes, np.int64)
    for u in range(nodes - 2, -1, -1):
        cost[u] = math.inf
        for e in range(first[u], first[u + 1]):
            here = cost[head[e]]
            if label[e] >= 0:
                here += loss[label[e]]
            if here < cost[u]:
                cost[u] = here
                best[u] = e
    node, count = 0, 0
    while node != nodes - 1:
        if label[best[node]] >= 0:
            taken[count] = label[best[node]]
            count += 1
        node = head[best[node]]
    return float(cost[0]), count


@njit(cache=True)
def list_walks(first: Ints, head: Ints, label: Ints, rows: NDArray[np.int32]) -> int:
    """Fill ``rows`` with the coordinates of every path, padded by -1; return how many paths there are."""
    nodes = first.size - 1
    at = first[:-1].copy()  # the next edge to try at each node on the stack
    stack = np.zeros(nodes, np.int64)
    labels = np.full(nodes, -1)
    depth, count = 0, 0
    while depth >= 0:
        node = stack[depth]
        if node == nodes - 1:
            length = 0
            for i in range(depth):
                if labels[i] >= 0:
                    rows[count, length] = labels[i]
                    length += 1
            count += 1
            depth -= 1
        elif at[node] == first[node + 1]:
            at[node] = first[node]
            depth -= 1
        else:
            labels[depth] = label[at[node]]
            stack[depth + 1] = head[at[node]]
            at[node] += 1
            depth += 1
    return count
