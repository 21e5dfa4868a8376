"""PyG snapshots joined over the union of their nodes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

    from thrifty.models.se_htgnn.temporal import Triple


def join(snapshots: Sequence[HeteroData], times: Sequence[Hashable]) -> dict[str, Any]:
    """Return the arguments of :class:`HeteroTemporalData` for a list of snapshots.

    Raises:
        ValueError: Nodes or features of a type change between snapshots and no ``n_id`` says who is who, or a feature
            is missing from some snapshots that have nodes; the message names type and snapshot.
    """
    from thrifty.models.se_htgnn.temporal import Edges

    for snapshot in snapshots:
        if not hasattr(snapshot, "node_types"):
            raise TypeError(f"snapshots: expected HeteroData, got {type(snapshot).__name__}")
    if not snapshots:
        raise ValueError("snapshots: expected at least one HeteroData, got none")
    times = list(times) or list(range(len(snapshots)))
    if len(times) != len(snapshots):
        raise ValueError(f"times: expected {len(snapshots)} as there are snapshots, got {len(times)}")
    types = list(dict.fromkeys(name for snapshot in snapshots for name in snapshot.node_types))
    triples: list[Triple] = list(dict.fromkeys(t for snapshot in snapshots for t in snapshot.edge_types))
    types += [name for t in triples for name in (t[0], t[2]) if name not in types]
    types = list(dict.fromkeys(types))
    ids, places, num_nodes = {}, {}, {}
    for name in types:
        places[name], held = _places(name, snapshots, times)
        num_nodes[name] = len(held)
        if any(name in s.node_types and "n_id" in s[name] for s in snapshots):
            ids[name] = held
    return {
        "num_nodes": num_nodes,
        "edges": {triple: Edges(*_edges(triple, snapshots, places, num_nodes, times)) for triple in triples},
        "x": {name: x for name in types if (x := _values("x", name, snapshots, places[name], num_nodes[name], times))
              is not None},
        "y": {name: y for name in types if (y := _values("y", name, snapshots, places[name], num_nodes[name], times))
              is not None},
        "times": times,
        "ids": ids,
    }  # fmt: skip


def _places(
    name: str, snapshots: Sequence[HeteroData], times: Sequence[Hashable]
) -> tuple[list[Tensor | None], list[Any]]:
    """Return where each snapshot's nodes of a type are in the union, and what the union's nodes are called."""
    stores = [s[name] if name in s.node_types else None for s in snapshots]
    named = [store is not None and "n_id" in store for store in stores]
    if any(named):
        code: dict[Any, int] = {}
        found: list[Tensor | None] = []
        for store, is_named, time in zip(stores, named, times, strict=True):
            if store is not None and not is_named and _count(store):
                raise ValueError(f"snapshots: {name!r} has n_id in some snapshots and not in {time!r}")
            labels = [] if store is None or not is_named else _listed(store["n_id"])
            if len(set(labels)) < len(labels):
                raise ValueError(f"snapshots: n_id of {name!r} names a node twice in {time!r}")
            found.append(torch.tensor([code.setdefault(label, len(code)) for label in labels], dtype=torch.long))
        return found, list(code)
    counts = {index: _count(store) for index, store in enumerate(stores) if store is not None}
    known = {index: count for index, count in counts.items() if count is not None}
    total = max(known.values(), default=0)
    for index, count in known.items():
        if count != total:
            raise ValueError(
                f"snapshots: {name!r} has {count} nodes in snapshot {times[index]!r} and {total} in another; "
                "give each store n_id, which names its nodes"
            )
    if not known:
        total = 1 + max(
            (int(s[t].edge_index[end].max()) for s in snapshots for t in s.edge_types for end in (0, 1)
             if t[2 * end] == name and s[t].edge_index.numel()), default=-1,
        )  # fmt: skip
    return [torch.arange(total) if store is not None else None for store in stores], list(range(total))


def _listed(labels: Any) -> list[Any]:
    return labels.tolist() if hasattr(labels, "tolist") else list(labels)


def _count(store: Any) -> int | None:
    if "x" in store or "num_nodes" in store or "y" in store or "n_id" in store:
        return (
            int(store.num_nodes)
            if "num_nodes" in store or "x" in store
            else len(store["y"] if "y" in store else store["n_id"])
        )
    return None


def _values(key: str, name: str, snapshots: Sequence[HeteroData], places: list[Tensor | None], count: int,
            times: Sequence[Hashable]) -> Tensor | None:  # fmt: skip
    """Return a type's features or targets over the union: 0 (features) or NaN (targets) where a node is absent."""
    held = [s[name][key] if name in s.node_types and key in s[name] else None for s in snapshots]
    widths = {tuple(v.shape[1:]) for v in held if v is not None}
    if not widths:
        return None
    if len(widths) > 1:
        raise ValueError(f"snapshots: {key} of {name!r} has several shapes: {sorted(widths)}")
    (width,) = widths
    width = () if key == "y" and width == (1,) else width
    out = torch.full((len(snapshots), count, *width), float("nan") if key == "y" else 0.0)
    for s, (values, place) in enumerate(zip(held, places, strict=True)):
        if values is None and key == "x" and place is not None and len(place):
            raise ValueError(f"snapshots: {name!r} has no x in snapshot {times[s]!r}, where it has nodes")
        if values is not None and place is not None:
            if len(values) != len(place):
                raise ValueError(
                    f"snapshots: {key} of {name!r} in {times[s]!r}: expected {len(place)} rows, got {len(values)}"
                )
            out[s, place] = values.float().reshape(len(values), *width)
    return out


def _edges(triple: Triple, snapshots: Sequence[HeteroData], places: dict[str, list[Tensor | None]],
           num_nodes: dict[str, int], times: Sequence[Hashable]) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    pieces, snapshot, weights = [], [], []
    for s, held in enumerate(snapshots):
        if triple not in held.edge_types:
            continue
        store = held[triple]
        ends = []
        for end, name in ((0, triple[0]), (1, triple[2])):
            index = store.edge_index[end].long()
            place = places[name][s]
            place = torch.arange(num_nodes[name]) if place is None else place
            if len(index) and (int(index.min()) < 0 or int(index.max()) >= len(place)):
                raise ValueError(
                    f"edges of {triple}: expected {name!r} below {len(place)}, got {int(index.max())} in snapshot "
                    f"{times[s]!r}"
                )
            ends.append(place[index])
        pieces.append(torch.stack(ends))
        snapshot.append(torch.full((pieces[-1].shape[1],), s))
        weight = store.get("edge_weight")
        if weight is not None and weight.numel() == len(snapshot[-1]):
            weight = weight.reshape(-1)
        if weight is None and (attr := store.get("edge_attr")) is not None and attr.numel() == len(snapshot[-1]):
            weight = attr.reshape(-1)
        weights.append(weight)
    if not pieces:
        return torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long), None
    if all(weight is None for weight in weights):
        return torch.cat(pieces, 1), torch.cat(snapshot), None
    filled = [torch.ones(p.shape[1]) if w is None else w.float() for p, w in zip(pieces, weights, strict=True)]
    return torch.cat(pieces, 1), torch.cat(snapshot), torch.cat(filled)
