"""Spanning trees by star-mesh elimination: partition function, moments, samples. Compiled kernels.

Eliminating node k from an electric network puts w_ik w_jk / S_k between its neighbours, S_k being the sum of its
conductances. The product of all S_k is the weighted number of spanning trees, and nothing is ever subtracted, so that
every entry keeps its relative accuracy however far the weights lie apart, unlike an LU factorisation of the Laplacian.
The same elimination gives vectors y_i with effective resistance R_ij = |y_i - y_j|², and P(e in T) = w_e R_e.

Source: Kirchhoff; Burton and Pemantle (1993) for pairs; Wilson (1996) for samples; Grassmann, Taksar and Heyman (1985)
for elimination without subtraction. The paper updates an LU factorisation instead.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: How far log weights may lie apart where products of two of them must not underflow.
LINEAR_RANGE = 300.0


@njit(cache=True)
def eliminate(w: Floats, size: int, keep: int, sums: Floats) -> float:
    """Eliminate nodes ``keep`` to ``size``, in place; fill in their sums, and return the log of the product of those.

    ``w[k, i]`` is then the probability that a walk from an eliminated k first meets the nodes before it in i.
    """
    product = 0.0
    for k in range(size - 1, keep - 1, -1):
        total = 0.0
        for j in range(k):
            total += w[k, j]
        sums[k] = total
        product += math.log(total) if total > 0.0 else -math.inf
        for i in range(k):
            if w[k, i] > 0.0:
                share = w[k, i] / total
                w[k, i] = share
                for j in range(i):
                    if w[j, k] > 0.0:
                        more = share * w[j, k]
                        w[i, j] += more
                        w[j, i] += more
    return product


@njit(cache=True)
def embed(nodes: int, tail: Ints, head: Ints, weight: Floats, place: Floats) -> float:
    """Fill ``place`` with a vector a node such that |y_i - y_j|² is the effective resistance; return log K."""
    w = np.zeros((nodes, nodes))
    for e in range(tail.size):
        w[tail[e], head[e]] += weight[e]
        w[head[e], tail[e]] += weight[e]
    sums = np.zeros(nodes)
    log_trees = eliminate(w, nodes, 1, sums)
    place[:, :] = 0.0
    for k in range(1, nodes):
        for j in range(1, k):
            share = w[k, j]
            if share > 0.0:
                for c in range(j + 1):
                    place[k, c] += share * place[j, c]
        place[k, k] = 1.0 / math.sqrt(sums[k])
    return log_trees


@njit(cache=True)
def tree_marginals(tail: Ints, head: Ints, weight: Floats, place: Floats, x: Floats) -> None:
    """Fill ``x`` with P(e in T) = w_e R_e."""
    for e in range(tail.size):
        apart = 0.0
        for c in range(place.shape[1]):
            gap = place[tail[e], c] - place[head[e], c]
            apart += gap * gap
        x[e] = min(1.0, weight[e] * apart)


@njit(cache=True)
def tree_second_moment(tail: Ints, head: Ints, weight: Floats, place: Floats, x: Floats, sigma: Floats) -> None:
    """Fill ``sigma`` with P(e, f in T) = x_e x_f - w_e w_f R_ef²."""
    edges = tail.size
    flows = np.empty((edges, place.shape[1]))
    for e in range(edges):
        for c in range(place.shape[1]):
            flows[e, c] = (place[tail[e], c] - place[head[e], c]) * math.sqrt(weight[e])
    transfer = flows @ flows.T
    for e in range(edges):
        for f in range(e):
            both = max(0.0, x[e] * x[f] - transfer[e, f] * transfer[e, f])
            sigma[e, f] = both
            sigma[f, e] = both
        sigma[e, e] = x[e]


@njit(cache=True)
def _log_sum(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


@njit(cache=True)
def conductances(nodes: int, tail: Ints, head: Ints, theta: Floats, top: float, logs: bool) -> Floats:
    """Return the matrix of conductances between nodes, exp(theta - top) or its logarithm; parallel edges add up."""
    w = np.full((nodes, nodes), -math.inf if logs else 0.0)
    for e in range(tail.size):
        a, b = tail[e], head[e]
        if a != b:
            w[a, b] = _log_sum(w[a, b], theta[e] - top) if logs else w[a, b] + math.exp(theta[e] - top)
            w[b, a] = w[a, b]
    return w


@njit(cache=True)
def log_eliminate(w: Floats, size: int, keep: int) -> float:
    """Eliminate likewise in the log domain, and likewise return the log of the product of sums."""
    product = 0.0
    for k in range(size - 1, keep - 1, -1):
        top = -math.inf
        for j in range(k):
            top = max(top, w[k, j])
        if top == -math.inf:
            return -math.inf
        total = 0.0
        for j in range(k):
            total += math.exp(w[k, j] - top)
        total = top + math.log(total)
        product += total
        for i in range(1, k):
            share = w[k, i] - total
            if share > -math.inf:
                for j in range(i):
                    if w[k, j] > -math.inf:
                        w[i, j] = _log_sum(w[i, j], share + w[k, j])
                        w[j, i] = w[i, j]
    return product


@njit(cache=True)
def effective(w: Floats, found: Floats, logs: bool) -> None:
    """Fill ``found`` with (log) effective conductances between all pairs of nodes, however far weights lie apart.

    Nodes are dealt into four groups; for each two of them the others are eliminated, and the rest is solved likewise:
    six problems of half the size, so O(nodes³) in all. The stack is our own: numba's cache does not bear recursion.
    """
    nodes = w.shape[0]
    levels = 3 + math.ceil(math.log2(nodes))
    work, sums = np.empty((levels, nodes, nodes)), np.empty(nodes)
    names = np.empty((levels, nodes), np.int64)
    counts, tried = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    work[0] = w
    names[0] = np.arange(nodes)
    counts[0] = nodes
    level = 0
    while level >= 0:
        count, here, below, order = counts[level], work[level], work[level + 1], names[level + 1]
        if count == 2:
            found[names[level, 0], names[level, 1]] = here[0, 1]
            found[names[level, 1], names[level, 0]] = here[0, 1]
            level -= 1
            continue
        groups = min(4, count)
        if tried[level] == groups * (groups - 1) // 2:
            level -= 1
            continue
        a, b = 1, tried[level]
        while b >= a:
            b -= a
            a += 1
        tried[level] += 1
        kept = 0
        for i in range(count):
            if i % groups == a or i % groups == b:
                order[kept] = i
                kept += 1
        last = kept
        for i in range(count):
            if i % groups != a and i % groups != b:
                order[last] = i
                last += 1
        for i in range(count):
            for j in range(count):
                below[i, j] = here[order[i], order[j]]
        if logs:
            log_eliminate(below, count, kept)
        else:
            eliminate(below, count, kept, sums)
        for i in range(kept):
            order[i] = names[level, order[i]]
        level += 1
        counts[level] = kept
        tried[level] = 0


@njit(cache=True)
def domain(theta: Floats) -> tuple[float, bool]:
    """Return the largest log weight, and whether the others lie so far below it that only logarithms hold them."""
    top, low = -math.inf, math.inf
    for here in theta:
        top = max(top, here)
        if here > -math.inf:
            low = min(low, here)
    return top, top - low > LINEAR_RANGE


@njit(cache=True)
def wide_marginals(nodes: int, tail: Ints, head: Ints, theta: Floats, x: Floats) -> float:
    """Fill ``x`` likewise for weights of any range, and return log K; edges within one node count as contracted."""
    top, logs = domain(theta)
    w = conductances(nodes, tail, head, theta, top, logs)
    found = np.full((nodes, nodes), -math.inf if logs else 0.0)
    if nodes > 1:
        effective(w, found, logs)
    for e in range(tail.size):
        x[e] = 0.0
        if tail[e] != head[e] and theta[e] > -math.inf:
            between = found[tail[e], head[e]]
            x[e] = min(1.0, math.exp(theta[e] - top - between) if logs else math.exp(theta[e] - top) / between)
    return top * (nodes - 1) + (log_eliminate(w, nodes, 1) if logs else eliminate(w, nodes, 1, np.empty(nodes)))


@njit(cache=True)
def wide_second_moment(nodes: int, tail: Ints, head: Ints, theta: Floats, x: Floats, sigma: Floats) -> None:
    """Fill ``sigma`` for weights of any range: P(e) times the marginals of the graph with e contracted."""
    ends, other, given = np.empty_like(tail), np.empty_like(head), np.empty(tail.size)
    for e in range(tail.size):
        gone, stays = max(tail[e], head[e]), min(tail[e], head[e])
        for f in range(tail.size):
            for side in range(2):
                node = tail[f] if side == 0 else head[f]
                node = stays if node == gone else node - (1 if node > gone else 0)
                if side == 0:
                    ends[f] = node
                else:
                    other[f] = node
        wide_marginals(nodes - 1, ends, other, theta, given)
        for f in range(tail.size):
            sigma[e, f] = x[e] * given[f]
        sigma[e, e] = x[e]
    for e in range(tail.size):  # of the two ways to a pair, that from the rarer edge rounds less
        for f in range(e):
            sigma[e, f] = sigma[f, e] = sigma[e, f] if x[e] <= x[f] else sigma[f, e]


@njit(cache=True)
def wilson(
    first: Ints, to: Ints, by: Ints, weight: Floats, limit: int, rng: np.random.Generator, taken: Ints
) -> bool:  # fmt: skip
    """Fill ``taken`` with the edges of a random spanning tree by loop-erased walks; False: too many steps.

    How many steps are popped is independent of the tree that remains (Wilson, theorem 2), so giving up after a number
    of steps, and drawing in another way, does not bend the law.

    Args:
        first: Neighbours of node u are ``first[u]`` to ``first[u + 1]``.
        to: Who they are.
        by: By which edge.
        weight: Of each edge.
        limit: Steps.
        rng: Where random numbers come from.
        taken: Filled.
    """
    nodes = first.size - 1
    sums = np.zeros(nodes)
    for u in range(nodes):
        for i in range(first[u], first[u + 1]):
            sums[u] += weight[by[i]]
    inside = np.zeros(nodes, np.bool_)
    leave = np.zeros(nodes, np.int64)
    inside[0] = True
    steps, count = 0, 0
    for start in range(1, nodes):
        node = start
        while not inside[node]:
            left = rng.random() * sums[node]
            chosen = first[node]
            for i in range(first[node], first[node + 1]):
                if weight[by[i]] > 0.0:
                    chosen = i
                    left -= weight[by[i]]
                    if left < 0.0:
                        break
            leave[node] = chosen
            node = to[chosen]
            steps += 1
            if steps > limit:
                return False
        node = start
        while not inside[node]:
            inside[node] = True
            taken[count] = by[leave[node]]
            count += 1
            node = to[leave[node]]
    return True


@njit(cache=True)
def contract_and_delete(nodes: int, tail: Ints, head: Ints, theta: Floats, uniforms: Floats, taken: Ints) -> None:
    """Fill ``taken`` with a random tree, edge by edge: taken edges are contracted, the others deleted.

    Edge e is taken with probability w_e over the effective conductance between its ends in what is left of the graph,
    heavy edges coming first, so that the graph shrinks early.
    """
    ends, other, left = tail.copy(), head.copy(), theta.copy()
    top, logs = domain(theta)
    count, alive = 0, nodes
    for e in np.argsort(-theta):
        a, b = min(ends[e], other[e]), max(ends[e], other[e])
        if a == b:
            continue
        order = np.arange(alive)
        order[0], order[a] = a, order[0]
        at = 0
        for i in range(alive):
            if order[i] == b:
                at = i
        order[at], order[1] = order[1], b
        w = conductances(alive, ends, other, left, top, logs)
        part = np.empty((alive, alive))
        for i in range(alive):
            for j in range(alive):
                part[i, j] = w[order[i], order[j]]
        if logs:
            log_eliminate(part, alive, 2)
            chance = math.exp(left[e] - top - part[0, 1])
        else:
            eliminate(part, alive, 2, np.empty(alive))
            chance = math.exp(left[e] - top) / part[0, 1]
        if uniforms[e] < chance:
            taken[count] = e
            count += 1
            for f in range(ends.size):
                ends[f] = a if ends[f] == b else ends[f] - (1 if ends[f] > b else 0)
                other[f] = a if other[f] == b else other[f] - (1 if other[f] > b else 0)
            alive -= 1
            if alive == 1:
                return
        else:
            left[e] = -math.inf


@njit(cache=True)
def kruskal(nodes: int, tail: Ints, head: Ints, loss: Floats, taken: Ints) -> float:
    """Fill ``taken`` with the edges of a spanning tree of least loss; return it."""
    root = np.arange(nodes)
    count, value = 0, 0.0
    for e in np.argsort(loss, kind="mergesort"):
        a, b = tail[e], head[e]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        while root[b] != b:
            root[b] = root[root[b]]
            b = root[b]
        if a != b:
            root[a] = b
            taken[count] = e
            count += 1
            value += loss[e]
    return value


@njit(cache=True)
def list_trees(nodes: int, tail: Ints, head: Ints, rows: NDArray[np.int32]) -> int:
    """Fill ``rows`` with the edges of every spanning tree; return how many there are."""
    edges, size = tail.size, nodes - 1
    chosen = np.zeros(size, np.int64)
    part = np.zeros((size + 1, nodes), np.int64)  # the component of each node, after each choice
    for u in range(nodes):
        part[0, u] = u
    depth, e, count = 0, 0, 0
    while True:
        if depth == size:
            for i in range(size):
                rows[count, i] = chosen[i]
            count += 1
        if depth == size or edges - e < size - depth:
            if depth == 0:
                return count
            depth -= 1
            e = chosen[depth] + 1
            continue
        a, b = part[depth, tail[e]], part[depth, head[e]]
        if a != b:
            for u in range(nodes):
                part[depth + 1, u] = a if part[depth, u] == b else part[depth, u]
            chosen[depth] = e
            depth += 1
        e += 1
