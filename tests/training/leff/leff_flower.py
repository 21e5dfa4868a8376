"""A small federation as a Flower app: run as a script, it goes through Flower's simulation; processes import it."""

import os
import time
from pathlib import Path

import torch
from leff_models import batches, clients, make

from thrifty.training.leff import LeffConfig, LeffServer, leff_client_app, leff_server_app

CAPACITIES = [1, 2, 6]
CONFIG = LeffConfig(lr=1e-2, distill_steps=4, seed=4)
#: Environment: where the final model goes; which client hangs, and in which round, after it wrote that file.
RESULT, HANG, HANGING, TIMEOUT = "LEFF_RESULT", "LEFF_HANG", "LEFF_HANGING", "LEFF_TIMEOUT"


def federation(kind="bert"):
    return make(kind), clients(kind, CAPACITIES), batches(kind)


def make_client(context):
    torch.set_num_threads(1)
    client = federation()[1][int(context.node_config["partition-id"])]
    if os.environ.get(HANG) == client.name:
        train = client.train

        def hang(model, round_, config, **how):
            if round_ == 2:
                Path(os.environ[HANGING]).write_text(str(os.getpid()))
                time.sleep(600)
            return train(model, round_, config, **how)

        client.train = hang
    return client


def make_server(context):
    torch.set_num_threads(1)
    model, _, proxy = federation()
    return LeffServer(model, CONFIG, proxy)


def finished(strategy):
    place = os.environ[RESULT]
    strategy.server.history.save(place + ".json", force=True)
    torch.save(strategy.server.model.state_dict(), place + ".part")
    Path(place + ".part").replace(place)


client_app = leff_client_app(make_client, threads=1)
server_app = leff_server_app(
    make_server,
    2,
    timeout=float(os.environ.get(TIMEOUT, "120")),
    finished=finished,
    min_available_nodes=len(CAPACITIES),
)


if __name__ == "__main__":
    from flwr.simulation import run_simulation

    run_simulation(
        server_app=server_app, client_app=client_app, num_supernodes=len(CAPACITIES),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}},
    )  # fmt: skip
