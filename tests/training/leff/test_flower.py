"""On Flower: the same numbers as in one process, whatever the transport."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from flwr.app import ConfigRecord
from leff_flower import CAPACITIES, CONFIG, RESULT, federation
from leff_grid import LocalGrid
from leff_models import batches, clients, columns, make, same, state_of

from thrifty.training.leff import (
    History,
    LeffClient,
    LeffConfig,
    LeffServer,
    LeffStrategy,
    compress_context,
    leff_client_app,
    leff_server_app,
    simulate,
)
from thrifty.training.leff.flower import from_record, to_record


def app_for(kind, **how):
    def make_client(context):
        index = context.node_config["partition-id"]
        [client] = [c for c in clients(kind, CAPACITIES) if c.name == str(index)]
        return client

    return leff_client_app(make_client, **how)


def run(kind, config, rounds=2, silent=(), proxy=True, **options):
    grid = LocalGrid(app_for(kind), [{"partition-id": index} for index in range(len(CAPACITIES))])
    grid.silent |= set(silent)
    model = make(kind)
    strategy = LeffStrategy(LeffServer(model, config, batches(kind) if proxy else None), **options)
    result = strategy.start(grid, num_rounds=rounds)
    return model, strategy, result, grid


@pytest.mark.parametrize("kind", ["bert", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("vit", "gpt2"))])
def test_messages_give_the_numbers_of_one_process(kind):
    config = LeffConfig(lr=1e-2, distill_steps=4)
    model, strategy, result, _ = run(kind, config)
    alone = make(kind)
    history = simulate(alone, clients(kind, CAPACITIES), batches(kind), 2, config)
    for name, tensor in state_of(alone).items():
        torch.testing.assert_close(dict(state_of(model))[name], tensor, atol=1e-6, rtol=0)
    theirs = strategy.server.history
    assert [(r.down, r.up) for r in theirs.rounds] == [(r.down, r.up) for r in history.rounds]
    assert from_record(result.arrays).keys() <= model.state_dict().keys()
    assert len(result.train_metrics_clientapp) == 2
    assert result.train_metrics_clientapp[1]["loss"] > 0


@pytest.mark.parametrize("settings", [
    pytest.param({"context_dtype": "bfloat16", "edge": "wrap"}, marks=pytest.mark.slow),
    {"context_dtype": "int8", "gradient_checkpointing": True, "train_extras": "norm_only"},
    pytest.param({"server_optimizer": "momentum", "participation": 0.5, "proximal": 0.1}, marks=pytest.mark.slow),
    {"clip_norm": 0.1, "importance": "clients", "embeddings_once": False},
])  # fmt: skip
def test_every_setting_travels(settings):
    config = LeffConfig(**{"lr": 1e-2, "distill_steps": 2, **settings})
    model, *_ = run("llama", config)
    alone = make("llama")
    simulate(alone, clients("llama", CAPACITIES), batches("llama"), 2, config)
    for name, tensor in state_of(alone).items():
        torch.testing.assert_close(state_of(model)[name], tensor, atol=1e-6, rtol=0)


def test_a_node_that_does_not_answer_costs_its_own_update_only():
    config = LeffConfig(compression="drop", sampler="random", lr=1e-2)
    model, strategy, *_ = run("bert", config, 1, silent=[(1, "train")], proxy=False)
    record = strategy.server.history.rounds[0]
    assert record.clients["0"].status == "lost"
    alone = make("bert")
    simulate(
        alone, clients("bert", CAPACITIES), rounds=1, config=config, faults=lambda _, c: "lost" if c == "0" else None
    )
    assert same(state_of(model), state_of(alone))
    _, strategy, *_ = run("bert", config, 1, silent=[(1, "query")], proxy=False)
    assert "0" not in strategy.server.history.rounds[0].clients


def test_all_nodes_fail_and_the_model_stays():
    config = LeffConfig(compression="drop", sampler="random", lr=1e-2)
    silent = [(node, "train") for node in range(1, len(CAPACITIES) + 1)]
    model, strategy, result, _ = run("bert", config, 2, silent=silent, proxy=False)
    assert all(r.failed for r in strategy.server.history.rounds)
    assert same(state_of(model), state_of(make("bert")))
    assert set(from_record(result.arrays)) <= set(model.state_dict())


def test_the_whole_model_is_at_no_weak_client():
    config = LeffConfig(compression="drop", sampler="random", compression_rate=0.2)
    *_, grid = run("bert", config, 2, proxy=False)
    of_weak = [m for m in grid.seen if m.metadata.message_type == "train" and m.metadata.dst_node_id == 1]
    names = [set(m.content.array_records["arrays"]) for m in of_weak]
    layers = {n.split(".")[3] for n in names[0] if "encoder.layer" in n}
    assert len(layers) < 6
    assert any("embeddings" in n for n in names[0])
    assert not any("word_embeddings" in n for n in names[1]), "they are kept at the node"


def test_a_node_that_lost_its_embeddings_gets_them_again():
    config = LeffConfig(compression="drop", sampler="random")
    grid = LocalGrid(app_for("bert"), [{"partition-id": index} for index in range(len(CAPACITIES))])
    strategy = LeffStrategy(LeffServer(make("bert"), config))
    strategy.start(grid, num_rounds=1)
    grid.contexts[1].state.clear()
    strategy.start(grid, num_rounds=2)
    rounds = strategy.server.history.rounds
    assert [r.clients["0"].status for r in rounds] == ["averaged", "lost", "averaged"]
    assert rounds[2].clients["0"].down > rounds[1].clients["0"].down


def test_clients_evaluate_the_whole_model_if_they_are_asked():
    def evaluate(model, context):
        return {"layers": model.config.num_hidden_layers, "id": context.node_config["partition-id"]}

    grid = LocalGrid(app_for("bert", evaluate=evaluate), [{"partition-id": index} for index in range(3)])
    config = LeffConfig(compression="drop", sampler="random")
    strategy = LeffStrategy(LeffServer(make("bert"), config), fraction_evaluate=1.0)
    result = strategy.start(grid, num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["layers"] == pytest.approx(6)


def test_bfloat16_travels_bit_by_bit():
    state = {"a": torch.randn(3, 2).bfloat16(), "b": torch.randn(2), "c": torch.tensor([1, 2], dtype=torch.int8)}
    assert same(from_record(*to_record(state)), state)


def test_arrays_of_the_callers_own_are_taken_and_wrong_ones_refused():
    config = LeffConfig(compression="drop", sampler="random")
    grid = LocalGrid(app_for("bert"), [{"partition-id": index} for index in range(3)])
    strategy = LeffStrategy(LeffServer(make("bert"), config))
    theirs = make("bert", seed=7)
    strategy.configure_train(1, to_record(theirs.state_dict())[0], ConfigRecord(), grid)
    assert same(state_of(strategy.server.model), state_of(theirs))
    with pytest.raises(ValueError, match="initial_arrays: expected the state of the server's model"):
        strategy.configure_train(1, to_record({"x": torch.ones(1)})[0], ConfigRecord(), grid)


def one_round(make_client, count=3):
    grid = LocalGrid(leff_client_app(make_client), [{"partition-id": index} for index in range(count)])
    strategy = LeffStrategy(LeffServer(make("bert"), LeffConfig(compression="drop", sampler="random")))
    strategy.start(grid, num_rounds=1)
    return strategy.server.history.rounds[0]


@pytest.mark.parametrize(("capacity", "says"), [
    (0, "capacity: expected a whole number of layers of at least 1, got 0"),
    (9, "capacity: expected at most 6"),
    (2.7, "capacity: expected a whole number"),
])  # fmt: skip
def test_a_node_that_says_a_capacity_that_there_is_not_costs_its_own_round(capacity, says):
    record = one_round(
        lambda context: LeffClient(
            str(context.node_config["partition-id"]), columns("bert"), capacity if context.node_id == 2 else 1
        )
    )
    assert sorted(record.clients) == ["0", "2"]
    assert len(record.averaged) == 2
    assert any(remark.startswith("1: ") and says in remark for remark in record.refused)


def test_two_nodes_of_one_name():
    record = one_round(lambda context: LeffClient("same", columns("bert"), capacity=1), 2)
    assert [r.status for r in record.clients.values()] == ["averaged"]
    assert record.refused == ["node 2: there is a client 'same' already"]


@pytest.mark.parametrize("damage", [
    lambda content: content.config_records.clear(),
    lambda content: content.metric_records.clear(),
    lambda content: content["config"].update({"client": "2"}),
    lambda content: content["config"].update({"bfloat16": ["x"]}),
    lambda content: content.__setitem__("more", content["arrays"]),
])  # fmt: skip
def test_a_reply_that_is_damaged_or_in_anothers_name_is_refused(damage):
    config = LeffConfig(compression="drop", sampler="random", lr=1e-2)
    grid = LocalGrid(app_for("bert"), [{"partition-id": index} for index in range(3)])
    strategy = LeffStrategy(LeffServer(make("bert"), config))
    replies = list(grid.send_and_receive(strategy.configure_train(1, strategy.initial_arrays(), ConfigRecord(), grid)))
    damage(next(r.content for r in replies if r.metadata.src_node_id == 1))
    strategy.aggregate_train(1, replies)
    record = strategy.server.history.rounds[0]
    assert {name: r.status for name, r in record.clients.items()} == {"0": "lost", "1": "averaged", "2": "averaged"}
    assert len(record.refused) == 1
    assert record.refused[0].startswith("0: its reply")


def test_an_interrupted_server_goes_on(tmp_path):
    config = LeffConfig(compression="drop", sampler="random", lr=1e-2)
    seen = []
    for rounds in (1, 3):
        grid = LocalGrid(app_for("bert"), [{"partition-id": index} for index in range(3)])
        app = leff_server_app(
            lambda _: LeffServer(make("bert"), config), rounds, out=tmp_path, finished=lambda s: seen.append(s.server)
        )
        app(grid, next(iter(grid.contexts.values())))
    assert [r.round for r in seen[1].history.rounds] == [1, 2, 3]
    alone = make("bert")
    simulate(alone, clients("bert", CAPACITIES), rounds=3, config=config)
    for name, tensor in state_of(alone).items():
        torch.testing.assert_close(state_of(seen[1].model)[name], tensor, atol=1e-6, rtol=0)
    assert len(list(tmp_path.glob("round-*"))) == 2


def test_a_model_in_half_precision_stays_so_at_its_clients():
    model = make("llama").bfloat16()
    client = compress_context(model, 2, 1, 0.5, config=LeffConfig(compression="drop"))
    from thrifty.training.leff.client_model import Shape

    built = Shape.of(client, model, LeffConfig()).build(client.state())
    assert {p.dtype for p in built.model.parameters()} == {torch.bfloat16}
    assert built.model.model.rotary_emb.inv_freq.dtype == torch.float32
    for name, tensor in built.trained().items():
        assert torch.equal(tensor, client.trained()[name])


def test_noise_on_flower_is_not_drawn_from_the_seed_that_everybody_knows():
    config = LeffConfig(compression="drop", sampler="random", lr=1e-2, clip_norm=0.1, noise_multiplier=0.5)
    model, *_ = run("bert", config, 1, proxy=False)
    again, *_ = run("bert", config, 1, proxy=False)
    assert not same(state_of(model), state_of(again))


def test_a_model_that_clients_cannot_build_is_refused():
    plain = torch.nn.Module()
    plain.blocks = torch.nn.ModuleList([torch.nn.Linear(1, 1)])
    with pytest.raises(ValueError, match="server: expected a model of transformers"):
        LeffStrategy(LeffServer(plain, LeffConfig(compression="drop", sampler="random")))


def test_checkpoints_and_the_ledger(tmp_path):
    config = LeffConfig(compression="drop", sampler="random", lr=1e-2)
    model, strategy, *_ = run("bert", config, 1, proxy=False, out=tmp_path)
    again = LeffServer(make("bert", seed=3), config)
    again.load(tmp_path / "round-00001")
    assert same(state_of(again.model), state_of(model))
    assert again.history.to_json() == strategy.server.history.to_json()


def reference():
    model, who, proxy = federation()
    simulate(model, who, proxy, 2, CONFIG)
    return state_of(model)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.dist
def test_flowers_simulation_gives_the_numbers_of_one_process(tmp_path):
    script = Path(__file__).with_name("leff_flower.py")
    place = tmp_path / "model.pt"
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_DISABLE_METRICS": "1",
                   RESULT: str(place), "FLWR_HOME": str(tmp_path / "flwr"), "RAY_USAGE_STATS_ENABLED": "0",
                   "RAY_worker_niceness": "0",  # else they starve beside other work
                   "PYTHONPATH": os.pathsep.join([str(script.parent), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(place, weights_only=True)
    for name, tensor in reference().items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=0)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


APP = """
[project]
name = "leff-test"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "thrifty"
[tool.flwr.app.components]
serverapp = "leff_flower:server_app"
clientapp = "leff_flower:client_app"
"""


def until(condition, seconds, what, processes):
    deadline = time.monotonic() + seconds
    while not condition():
        dead = [name for name, p in processes.items() if p.poll() is not None]
        assert not dead, f"{dead} ended before {what}"
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.timeout(240)
def test_a_superlink_and_supernodes_finish_a_round_although_a_client_ends_in_it(tmp_path):
    """Real processes on loopback: two rounds, and the node of client 1 is killed in the second one."""
    here, binaries = Path(__file__).parent, Path(sys.executable).parent
    app, result, hanging = tmp_path / "app", tmp_path / "model.pt", tmp_path / "hanging"
    app.mkdir()
    for name in ("leff_flower.py", "leff_models.py"):
        (app / name).write_text((here / name).read_text())
    (app / "pyproject.toml").write_text(APP)
    port = free_port()
    home = tmp_path / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", "FLWR_HOME": str(home),
                   RESULT: str(result), "LEFF_HANG": "1", "LEFF_HANGING": str(hanging), "LEFF_TIMEOUT": "40",
                   "FLWR_DISABLE_UPDATE_CHECK": "1",
                   "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}  # fmt: skip
    processes = {}

    def start(name, *words):
        log = (tmp_path / f"{name}.log").open("w")
        processes[name] = subprocess.Popen(
            [binaries / words[0], *words[1:]], env=environment, stdout=log, stderr=log, start_new_session=True
        )

    try:
        start("superlink", "flower-superlink", "--insecure", "--port", str(port),
              "--disable-runtime-dependency-installation")  # fmt: skip
        for index in range(len(CAPACITIES)):
            start(f"node{index}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}",
                  "--port", str(free_port()), "--node-config", f"partition-id={index}")  # fmt: skip
        submit = [binaries / "flwr", "run", str(app), "here"]
        deadline = time.monotonic() + 60
        while (done := subprocess.run(submit, env=environment, capture_output=True, text=True, check=False)).returncode:
            assert time.monotonic() < deadline, done.stdout + done.stderr
            time.sleep(1)
        until(hanging.exists, 120, "client 1 trains in round 2", processes)
        os.killpg(processes.pop("node1").pid, signal.SIGKILL)
        os.kill(int(hanging.read_text()), signal.SIGKILL)
        until(result.exists, 60, "the end of round 2", processes)
    finally:
        for process in processes.values():
            os.killpg(process.pid, signal.SIGKILL)
    found = torch.load(result, weights_only=True)
    history = History.load(f"{result}.json")
    status = {(r.round, name): record.status for r in history.rounds for name, record in r.clients.items()}
    assert status[2, "1"] == "lost"
    assert "averaged" in (status[2, "0"], status[2, "2"]), "the round completes without the client that ended"
    model, who, proxy = federation()
    lost = lambda *which: None if status[which] == "averaged" else "lost"  # noqa: E731  # a busy machine loses more
    simulate(model, who, proxy, 2, CONFIG, faults=lost)
    for name, tensor in state_of(model).items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=0)
