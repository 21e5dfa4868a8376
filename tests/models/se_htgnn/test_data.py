"""Graphs from snapshots, tables and databases; windows, splits and pairs without a leak; bad input."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData
from toys import graph, model

from thrifty.models.se_htgnn import (
    SEHTGNN,
    Edges,
    EventTable,
    Forecast,
    HeteroTemporalData,
    NeighborSampler,
    from_database,
    from_events,
    negative_edges,
    temporal_split,
)
from thrifty.models.se_htgnn.splits import positive_edges

BUYS = ("user", "buys", "item")


def snapshot(users, items, pairs, **more):
    data = HeteroData()
    data["user"].x = torch.ones(users, 2)
    data["item"].x = torch.ones(items, 1)
    data[BUYS].edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T
    for key, value in more.items():
        data["user"][key] = value
    return data


def test_snapshots_of_pyg_are_joined():
    second = HeteroData()
    second["user"].x = torch.full((2, 2), 2.0)  # items are absent here, and nobody buys
    data = HeteroTemporalData.from_snapshots([snapshot(2, 3, [(0, 1), (1, 2)]), second], ["mon", "tue"])
    assert data.metadata() == (["user", "item"], [BUYS])
    assert data.num_nodes == {"user": 2, "item": 3}
    assert data.edges[BUYS].snapshot.tolist() == [0, 0]
    assert data.x["item"][1].abs().sum() == 0
    assert data.present["item"].tolist() == [[True, True, True], [False, False, False]]
    net = SEHTGNN(data.metadata(), hidden_channels=4, num_layers=1, window=2)
    out = net([snapshot(2, 3, [(0, 1)]), second])
    assert {name: tuple(v.shape) for name, v in out.items()} == {"user": (2, 1, 1), "item": (3, 1, 1)}
    assert net.config.in_channels == {"user": 2, "item": 1}
    assert set(net.attention_weights) == {(0, BUYS)}


def test_nodes_with_names_are_united():
    first = snapshot(2, 1, [(0, 0)], n_id=torch.tensor([10, 20]), y=torch.tensor([1.0, 2.0]))
    later = snapshot(2, 1, [(1, 0)], n_id=torch.tensor([20, 30]), y=torch.tensor([3.0, 4.0]))
    data = HeteroTemporalData.from_snapshots([first, later])
    assert data.ids["user"] == [10, 20, 30]
    assert data.edges[BUYS].index.tolist() == [[0, 2], [0, 0]]
    assert torch.equal(torch.isnan(data.y["user"]), torch.tensor([[False, False, True], [True, False, False]]))
    assert data.y["user"][1, 1] == 3


def test_edge_weights_are_read():
    first = snapshot(2, 1, [(0, 0)])
    first[BUYS].edge_weight = torch.tensor([2.5])
    data = HeteroTemporalData.from_snapshots([first, snapshot(2, 1, [(1, 0)])])
    assert data.edges[BUYS].weight.tolist() == [2.5, 1.0]


def events():
    return pd.DataFrame(
        {
            "when": [
                "2024-01-01 05:00",
                "2024-01-01 23:00",
                "2024-01-03 00:00",
                "2024-01-03 12:00",
                "2024-01-03 13:00",
            ],
            "from": ["A", "A", "B", "A", None],
            "to": ["B", "B", "A", "C", "C"],
            "late": [10.0, 20.0, 5.0, np.nan, 8.0],
        }
    )


def test_events_become_snapshots():
    table = EventTable(
        events(), "when", {"from": "port", "to": "port"}, [("from", "sails", "to")], ["late"], weighted=True
    )
    data = from_events([table], "D", forecast=Forecast(0, "to", "late"), reverse=False)
    assert list(data.times) == ["2024-01-01", "2024-01-02", "2024-01-03"]
    place = {label: k for k, label in enumerate(data.ids["port"])}
    held = data.edges["port", "sails", "port"]
    found = {(data.times[s], data.ids["port"][i], data.ids["port"][j], float(w)) for s, i, j, w in
             zip(held.snapshot.tolist(), *held.index.tolist(), held.weight, strict=True)}  # fmt: skip
    assert found == {("2024-01-01", "A", "B", 2.0), ("2024-01-03", "B", "A", 1.0), ("2024-01-03", "A", "C", 1.0)}
    x, y = data.x["port"], data.y["port"]
    assert x.shape == (3, 3, 4)  # events and mean, as where from and as where to
    assert x[0, place["B"], 2:].tolist() == pytest.approx([np.log(3), 15.0])
    assert x[1].abs().sum() == 0  # an empty day
    assert y[0, place["B"]] == 15
    assert torch.isnan(y[1]).all()
    assert y[2, place["C"]] == 8
    counted = from_events([table], "D", forecast=Forecast(0, "from"))
    assert counted.y["port"][0, place["A"]] == 2
    few = from_events([table], "D", forecast=Forecast(0, "to", "late", least=2))
    assert torch.isfinite(few.y["port"]).sum() == 1
    assert len(counted.edges) == 2


def test_a_database_is_read_and_nothing_after_its_end():
    ships = SimpleNamespace(
        df=pd.DataFrame({"id": [1, 2], "tons": [5.0, 7.0]}), pkey_col="id", fkey_col_to_pkey_table={}, time_col=None
    )
    calls = pd.DataFrame(
        {
            "ship": [1, 2, 2],
            "port": ["x", "x", "y"],
            "t": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-09"]),
            "cost": [1.0, 2, 3],
        }
    )
    table = SimpleNamespace(
        df=calls, pkey_col=None, fkey_col_to_pkey_table={"ship": "ships", "port": "ports"}, time_col="t"
    )
    database = SimpleNamespace(table_dict={"ships": ships, "calls": table})
    data = from_database(database, forecast=("calls", "port", "cost"), until=pd.Timestamp("2024-01-02"))
    assert len(data) == 2
    assert data.metadata()[1] == [("ships", "calls", "ports"), ("ports", "rev_calls", "ships")]
    assert data.x["ships"][:, :, -1].tolist() == [[5, 0], [5, 7]]  # the second ship's first call is on day two
    assert data.present["ships"].tolist() == [[True, False], [True, True]]
    with pytest.raises(ValueError, match="expected a table with a time column"):
        from_database({"ships": ships})
    with pytest.raises(ValueError, match="forecast: expected a table of events among calls, got 'nothing'"):
        from_database(database, forecast=("nothing", "port", None))


def test_splits_leave_a_forecasts_horizon_in_its_own_part():
    split = temporal_split(30, window=4, validation=5, test=5, horizon=3)
    assert split.train.tolist() == list(range(4, 18))
    assert split.validation.tolist() == [20, 21, 22]
    assert split.test.tolist() == [25, 26, 27]
    with pytest.raises(ValueError, match="leave none to train on"):
        temporal_split(10, 7, 2, 2)


def test_nothing_of_a_target_or_later_is_read():
    """Features, edges and targets from the target snapshot on are changed: forecasts stay as they were."""
    data = graph()
    net = model(data)
    before = net(data.windows([5], 3))
    x = {name: v.clone() for name, v in data.x.items()}
    y = {name: v.clone() for name, v in data.y.items()}
    for values in (*x.values(), *y.values()):
        values[5:] = 99.0
    edges = {t: Edges(e.index[:, e.snapshot < 5], e.snapshot[e.snapshot < 5]) for t, e in data.edges.items()}
    after = net(HeteroTemporalData(data.num_nodes, edges, x, y).windows([5], 3))
    assert all(torch.equal(before[name], after[name]) for name in before)
    cut = data.until(5)
    assert len(cut) == 5
    assert torch.equal(net(cut.windows([5], 3))["a"], before["a"])


def shopping(seed=0):
    rng = np.random.default_rng(seed)
    index = torch.from_numpy(np.stack([rng.integers(0, 20, 300), rng.integers(0, 30, 300)]))
    return HeteroTemporalData({"user": 20, "item": 40}, {BUYS: Edges(index, torch.from_numpy(rng.integers(0, 6, 300)))})


def test_negatives_are_no_links_and_know_nothing_of_the_future():
    data = shopping()
    negative = negative_edges(data, BUYS, 3, np.random.default_rng(0), per_positive=5)
    positive = positive_edges(data, BUYS, 3)
    links = set(zip(*positive.tolist(), strict=True))
    assert negative.shape[1] == 5 * positive.shape[1]
    assert not links & set(zip(*negative.tolist(), strict=True))
    seen = set(data.edges[BUYS].index[1, data.edges[BUYS].snapshot < 3].tolist())
    assert set(negative[1].tolist()) <= seen
    held = data.edges[BUYS]
    unborn = torch.stack([held.index[0], torch.where(held.snapshot > 3, 39, held.index[1])])  # an item of later days
    moved = HeteroTemporalData(data.num_nodes, {BUYS: Edges(unborn, torch.where(held.snapshot > 3, 5, held.snapshot))})
    assert torch.equal(negative_edges(moved, BUYS, 3, np.random.default_rng(0), per_positive=5), negative)


def test_who_is_linked_to_all_has_no_negatives_and_who_is_linked_to_nearly_all_has():
    """A user who buys all 300 items on day 1 (or all but one), and one who buys one of them."""
    for missing in (0, 1):
        items = torch.arange(300)
        index = torch.stack([torch.zeros(300, dtype=torch.long), items])
        later = index[:, missing:]
        edges = torch.cat([index, later, torch.tensor([[1], [7]])], 1)
        when = torch.cat([torch.zeros(300), torch.ones(300 - missing), torch.ones(1)]).long()
        data = HeteroTemporalData({"user": 2, "item": 300}, {BUYS: Edges(edges, when)}, {"user": torch.ones(2, 2, 1)})
        found = negative_edges(data, BUYS, 1, np.random.default_rng(0))
        assert (found[1, found[0] == 0] == 0).all()
        assert int((found[0] == 0).sum()) == (299 if missing else 0)
        assert int((found[0] == 1).sum()) == 1


def test_negatives_are_among_those_that_the_relation_leads_to():
    """Two columns of one type: who only ever is a source is no destination to be told from."""
    flies = ("port", "flies", "port")
    index = torch.tensor([[0, 0, 1, 0, 1], [2, 3, 2, 3, 3]])
    data = HeteroTemporalData({"port": 4}, {flies: Edges(index, torch.tensor([0, 0, 0, 1, 1]))})
    found = negative_edges(data, flies, 1, np.random.default_rng(0), per_positive=20)
    assert set(found[1].tolist()) == {2}


def test_one_type_of_everything():
    data = graph()
    edges, begins = data.to_homogeneous()
    assert begins == {"a": 0, "b": 5}
    assert edges.index.shape == (2, 36)
    assert edges.index.max() < 9


def test_a_sample_of_everything_gives_what_the_graph_gives():
    """With all neighbours drawn, seeds' forecasts differ only by means over nodes; those are equal if all are seeds."""
    data = graph()
    net = model(data)
    sampler = NeighborSampler(data, "a", 3, [50, 50], batch_size=5)
    (piece,) = sampler([5, 6], epoch=None)
    assert piece.seeds.tolist() == [0, 1, 2, 3, 4]
    whole = net(data.windows([5, 6], 3), "a")["a"]
    assert {name: nodes.tolist() for name, nodes in piece.nodes.items()} == {"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3]}
    piece.sampled = False
    assert torch.allclose(net(piece, "a")["a"], whole)
    assert torch.equal(piece.y("a"), data.windows([5, 6], 3).y("a"))
    few = [p.nodes["a"].tolist() for p in NeighborSampler(data, "a", 3, [1], batch_size=2, seed=1)([5], epoch=0)]
    assert len(few) == 3
    again = [p.nodes["a"].tolist() for p in NeighborSampler(data, "a", 3, [1], batch_size=2, seed=1)([5], epoch=0)]
    assert few == again


def test_a_piece_has_the_edges_among_its_nodes_and_the_labels_of_its_seeds():
    """Against the plain loop over all edges of a denser graph, with weights."""
    data = graph(edges=90, counts=(12, 9), weights=True, snapshots=6)
    piece = NeighborSampler(data, "a", 3, [2, 2], horizon=2).around(np.array([1, 7]), [4], np.random.default_rng(0))
    assert len(piece.data) == 5  # the window's snapshots, and those of the horizon
    for triple, held in data.edges.items():
        source, target = (piece.nodes[triple[k]].tolist() for k in (0, 2))
        expected = sorted(
            (int(s) - 1, int(i), int(j), float(w))
            for s, i, j, w in zip(held.snapshot, *held.index, held.weight, strict=True)
            if 1 <= s < 4 and i in source and j in target
        )
        cut = piece.data.edges[triple]
        found = sorted(
            (int(s), source[i], target[j], float(w))
            for s, i, j, w in zip(cut.snapshot, *cut.index, cut.weight, strict=True)
        )
        assert found == expected
    y = piece.y("a", 2)
    place = {int(n): k for k, n in enumerate(piece.nodes["a"])}
    for node, k in place.items():
        if node in (1, 7):
            assert torch.equal(y[0, k], data.y["a"][4:6, node])
        else:
            assert torch.isnan(y[0, k]).all()
    assert torch.equal(piece.data.present["a"], data.present["a"][1:6][:, piece.nodes["a"]])


def test_at_most_so_many_neighbours_are_drawn():
    index = torch.stack([torch.arange(1, 30), torch.zeros(29, dtype=torch.long)])
    data = HeteroTemporalData(
        {"a": 30}, {("a", "to", "a"): Edges(index, torch.zeros(29, dtype=torch.long))}, {"a": torch.ones(2, 30, 1)}
    )
    piece = NeighborSampler(data, "a", 1, [4]).around(np.array([0]), [1], np.random.default_rng(0))
    assert len(piece.nodes["a"]) == 5


def bad(**changes):
    data = graph()
    held = {"num_nodes": data.num_nodes, "edges": data.edges, "x": data.x, "y": data.y} | changes
    return HeteroTemporalData(**held)


def test_bad_graphs_are_refused():
    x = {name: v.clone() for name, v in graph().x.items()}
    x["a"][2, 3, 0] = float("nan")
    with pytest.raises(ValueError, match="x of 'a': expected finite features, got .* at node 3 of snapshot 2"):
        bad(x=x)
    far = {("b", "in", "a"): Edges(torch.tensor([[4], [0]]), torch.tensor([1]))}
    with pytest.raises(ValueError, match=r"edges of \('b', 'in', 'a'\): expected 'b' .* got 4 in snapshot 1"):
        bad(edges=far)
    with pytest.raises(ValueError, match="there is no node type 'c'"):
        bad(edges={("c", "in", "a"): far["b", "in", "a"]})
    with pytest.raises(ValueError, match=r"x or y of 'a': expected \(snapshots, nodes, ...\) = \(8, 5\), got \(8, 4"):
        bad(x={"a": torch.ones(8, 4, 1)}, times=range(8))
    negative = {("b", "in", "a"): Edges(torch.tensor([[0], [0]]), torch.tensor([1]), torch.tensor([-1.0]))}
    with pytest.raises(ValueError, match="expected finite weights of at least 0"):
        bad(edges=negative)
    whole_numbers = bad(x={"a": torch.ones(8, 5, 1, dtype=torch.long)})
    assert whole_numbers.x["a"].dtype == torch.float32


def test_bad_windows_are_refused():
    data = graph()
    for targets in ([2], [9], []):
        with pytest.raises(ValueError, match="targets: expected snapshots from 3"):
            data.windows(targets, 3)
    with pytest.raises(ValueError, match="the model was made for windows of 3 snapshots, got 4"):
        model(data)(data.windows([5], 4))


def test_bad_snapshots_are_refused():
    with pytest.raises(
        ValueError, match="'user' has 3 nodes in snapshot 1 and 2 in another|'user' has 2 nodes in snapshot 0"
    ):
        HeteroTemporalData.from_snapshots([snapshot(2, 1, []), snapshot(3, 1, [])])
    with pytest.raises(
        ValueError, match=r"edges of \('user', 'buys', 'item'\): expected 'item' below 1, got 4 in snapshot 0"
    ):
        HeteroTemporalData.from_snapshots([snapshot(2, 1, [(0, 4)])])
    with pytest.raises(ValueError, match="expected at least one HeteroData"):
        HeteroTemporalData.from_snapshots([])
    with pytest.raises(ValueError, match="times: expected 1"):
        HeteroTemporalData.from_snapshots([snapshot(1, 1, [])], ["a", "b"])


def test_bad_events_are_refused():
    with pytest.raises(ValueError, match="frame: expected the columns day"):
        EventTable(events(), "day", {"from": "port"})
    with pytest.raises(ValueError, match="relations: 'ship' is not among the entities"):
        EventTable(events(), "when", {"from": "port"}, [("ship", "is", "from")])
    table = EventTable(events(), "when", {"from": "port", "to": "port"}, [], ["late"])
    with pytest.raises(ValueError, match="forecast: expected an entity among from, to, got 'ship'"):
        from_events([table], forecast=Forecast(0, "ship", "late"))
    with pytest.raises(ValueError, match="forecast: expected a value among"):
        from_events([table], forecast=Forecast(0, "to", "cost"))
    with pytest.raises(ValueError, match="1 rows have no 'when'"):
        from_events([EventTable(events().assign(when=[None, *events()["when"][1:]]), "when", {"to": "port"})])
    with pytest.raises(ValueError, match="at least one table"):
        from_events([])


@pytest.mark.filterwarnings("ignore:Could not infer format")
def test_times_that_are_no_dates_are_refused():
    for when in ([20240101] * 5, [1.7e9] * 5):
        with pytest.raises(ValueError, match="time: expected dates or times in 'when', got numbers"):
            from_events([EventTable(events().assign(when=when), "when", {"to": "port"})])
    with pytest.raises(ValueError, match="time: expected dates or times in 'when'"):
        from_events([EventTable(events().assign(when="yesterday-ish"), "when", {"to": "port"})])
    for freq in ("MS", "fortnight"):
        with pytest.raises(ValueError, match=f"freq: expected the length of a period .* got '{freq}'"):
            from_events([EventTable(events(), "when", {"to": "port"})], freq)
    whole = from_events([EventTable(events().assign(when=[3, 3, 1, 7, 7]), "when", {"to": "port"})], None)
    assert list(whole.times) == [1, 3, 7]


def test_periods_of_several_units():
    table = EventTable(events(), "when", {"from": "port", "to": "port"}, [("from", "sails", "to")])
    assert list(from_events([table], "2D").times) == ["2024-01-01", "2024-01-03"]
    assert len(from_events([table], "12h").times) == 5  # from the first event on
    assert len(from_events([table], "7D").times) == 1
    assert list(from_events([table], "M").times) == ["2024-01"]


def test_zones_are_wall_clocks_unless_tables_differ():
    east = pd.DataFrame({"when": pd.to_datetime(["2024-01-02 01:00"]).tz_localize("Asia/Tokyo"), "a": ["x"]})
    west = pd.DataFrame({"when": pd.to_datetime(["2024-01-01 16:00"]).tz_localize("UTC"), "a": ["y"]})
    alone = from_events([EventTable(east, "when", {"a": "a"})])
    assert list(alone.times) == ["2024-01-02"]
    both = from_events([EventTable(east, "when", {"a": "a"}), EventTable(west, "when", {"a": "a"})])
    assert list(both.times) == ["2024-01-01"]
    naive = west.assign(when=west["when"].dt.tz_localize(None))
    with pytest.raises(ValueError, match="some tables have a time zone and some have none"):
        from_events([EventTable(east, "when", {"a": "a"}), EventTable(naive, "when", {"a": "a"})])


def test_a_time_that_is_far_off_is_warned_of():
    rows = events().assign(when=[*events()["when"][:4], "2204-01-01 00:00"])
    with pytest.warns(UserWarning, match="is there a time that is wrong"):
        from_events([EventTable(rows, "when", {"to": "port"})])


def test_values_that_are_no_numbers_are_refused():
    rows = events().assign(late=["1,234.5", "2", "3", None, "4"])
    for table, forecast in (
        (EventTable(rows, "when", {"to": "port"}, [], ["late"]), None),
        (EventTable(rows, "when", {"to": "port"}), Forecast(0, "to", "late")),
    ):
        with pytest.raises(ValueError, match="values: expected numbers in 'late', got '1,234.5' and 0 more"):
            from_events([table], forecast=forecast)
    rows = rows.assign(late=["1", "2", "3", None, "4"])
    assert from_events([EventTable(rows, "when", {"to": "port"}, [], ["late"])]).x["port"].max() == 4


def test_counts_begin_with_an_entitys_first_event():
    rows = pd.DataFrame({"when": ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"], "to": ["A", "A", "B", "B"]})
    data = from_events([EventTable(rows, "when", {"to": "port"})], forecast=Forecast(0, "to"))
    assert data.y["port"][:, 0].tolist() == [1, 1, 0, 0]
    assert torch.isnan(data.y["port"][:2, 1]).all()
    assert data.y["port"][2:, 1].tolist() == [1, 1]


def test_classes_are_the_most_frequent_of_a_period():
    rows = events().assign(state=["no", "yes", "no", "yes", "no"])
    table = EventTable(rows, "when", {"to": "port"})
    data = from_events([table], forecast=Forecast(0, "to", "state", classes=True))
    place = {label: k for k, label in enumerate(data.ids["port"])}
    assert data.source["classes"] == ["no", "yes"]
    assert data.y["port"][0, place["B"]] == 0  # one each: the first in order
    assert data.y["port"][2, place["C"]] == 0
    numbers = EventTable(rows.assign(state=[2, 0, 2, 5, 5]), "when", {"to": "port"})
    found = from_events([numbers], forecast=Forecast(0, "to", "state", classes=True)).y["port"]
    assert set(found[torch.isfinite(found)].tolist()) == {0.0, 2.0, 5.0}
    halves = EventTable(rows.assign(state=[0.5, 0, 2, 5, 5]), "when", {"to": "port"})
    with pytest.raises(ValueError, match="expected classes as whole numbers in 'state', got 0.5"):
        from_events([halves], forecast=Forecast(0, "to", "state", classes=True))


def test_a_graph_takes_times_of_any_kind_and_leaves_its_arguments_alone():
    x = {"a": torch.ones(3, 2, 1, dtype=torch.float64)}
    days = pd.date_range("2024-01-01", periods=3)
    data = HeteroTemporalData({"a": 2}, {}, x, {"a": torch.ones(3, 2, dtype=torch.long)}, times=days)
    assert len(data) == 3
    assert x["a"].dtype == torch.float64
    assert data.y["a"].dtype == torch.float32
    assert torch.isnan(data.windows([3], 2).y("a")).all()


def test_static_features_are_an_entitys_from_its_first_event_on():
    """Entities that never occur are neither present nor drawn as negatives."""
    table = EventTable(events(), "when", {"from": "port", "to": "port"}, [("from", "sails", "to")])
    features = {"port": pd.DataFrame({"depth": [5.0, 6, 7, 8]}, index=["A", "B", "C", "Z"])}
    data = from_events([table], features=features)
    place = {label: k for k, label in enumerate(data.ids["port"])}
    assert data.x["port"][:, place["C"], -1].tolist() == [0, 0, 7]
    assert data.x["port"][:, place["B"], -1].tolist() == [6, 6, 6]
    assert not data.present["port"][:, place["Z"]].any()
    assert data.source["features"] == {"port": ["events by from", "events by to", "depth"]}
    with pytest.raises(ValueError, match="features: expected a node type among port, got 'prot'"):
        from_events([table], features={"prot": features["port"]})
    twice = pd.concat([features["port"], features["port"]])
    with pytest.raises(ValueError, match="expected one row an entity of 'port'"):
        from_events([table], features={"port": twice})


def test_a_pair_counts_once_a_period_in_whatever_tables():
    table = EventTable(events(), "when", {"from": "port", "to": "port"}, [("from", "sails", "to")])
    once, twice = from_events([table], reverse=False), from_events([table, table], reverse=False)
    assert torch.equal(once.edges["port", "sails", "port"].index, twice.edges["port", "sails", "port"].index)
    counted = EventTable(events(), "when", {"from": "port", "to": "port"}, [("from", "sails", "to")], weighted=True)
    found = from_events([counted, table], reverse=False).edges["port", "sails", "port"].weight
    assert found.tolist() == [3.0, 2.0, 2.0]  # two sailings on the first day, and one more of the second table


def test_entities_of_a_database_that_have_a_time_are_not_known_before():
    users = SimpleNamespace(
        df=pd.DataFrame({"id": [1, 2, 3], "age": [20.0, 30, 50],
                         "created": pd.to_datetime(["2024-01-01", "2024-01-01", "2024-01-04"])}),
        pkey_col="id", fkey_col_to_pkey_table={}, time_col="created",
    )  # fmt: skip
    posts = SimpleNamespace(
        df=pd.DataFrame({"pid": [7, 8, 9], "user": [1, 2, 1], "size": [3.0, 4, 5],
                         "t": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-04"])}),
        pkey_col="pid", fkey_col_to_pkey_table={"user": "users"}, time_col="t",
    )  # fmt: skip
    votes = SimpleNamespace(
        df=pd.DataFrame({"post": [7, 7], "user": [2, 2], "t": pd.to_datetime(["2024-01-02", "2024-01-03"])}),
        pkey_col=None, fkey_col_to_pkey_table={"post": "posts", "user": "users"}, time_col="t",
    )  # fmt: skip
    tables = {"users": users, "posts": posts, "votes": votes}
    data = from_database(tables)
    assert data.x["users"][:, 2, -1].tolist() == [0, 0, 0, 50]
    assert not data.present["users"][:3, 2].any()
    assert ("users", "posts", "posts") in data.edges  # who wrote a post
    assert ("posts", "votes", "users") in data.edges
    before = from_database(tables, until=pd.Timestamp("2024-01-03"))
    assert before.num_nodes["users"] == 2


def test_values_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="y of 'a': expected one number a node"):
        bad(y={"a": torch.ones(8, 5, 2)})
    edge = torch.tensor([[0], [0]])
    with pytest.raises(ValueError, match=r"edges of .*: expected 1 weights, got \(1, 2\)"):
        bad(edges={("b", "in", "a"): Edges(edge, torch.tensor([0]), torch.ones(1, 2))})
    with pytest.raises(ValueError, match="expected 'b' from 0 to below 4, got -1"):
        bad(edges={("b", "in", "a"): Edges(-edge - 1, torch.tensor([0]))})
    with pytest.raises(TypeError, match="snapshots: expected HeteroData, got str"):
        HeteroTemporalData.from_snapshots(["a"])
    with pytest.raises(ValueError, match="n_id of 'user' names a node twice in 0"):
        HeteroTemporalData.from_snapshots([snapshot(2, 1, [], n_id=torch.tensor([3, 3]))])
    first = snapshot(2, 1, [(0, 0)])
    first[BUYS].edge_weight = torch.tensor([[2.5]])
    assert HeteroTemporalData.from_snapshots([first]).edges[BUYS].weight.tolist() == [2.5]
