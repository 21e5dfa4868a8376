"""The ledger of images through a vision transformer: weights, what a forward pass holds, FLOPs, traffic, seconds."""

from __future__ import annotations

from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.hardware import Device
from thrifty.advise.model import VisionTransformer
from thrifty.advise.offers import offers
from thrifty.advise.reach import Reach

#: Numbers a token and channel that are there at the fullest moment of a block, within its MLP, residual included.
HELD = 12
#: Numbers a token and channel that the operators of a block write; each is read once.
WRITTEN = 18.4
_WIDTH = 2  # bytes of a number


def advise_images(model: VisionTransformer, place: Device, images: int, batch: int) -> Advice:
    """Say what a forward pass of so many images takes, and which methods would change it.

    Args:
        model: The transformer.
        place: What it runs on, in 16 bits.
        images: That pass through, all together.
        batch: Images at once.
    """
    tokens = (model.image_size // model.patch) ** 2 + 1
    blocks = 2.0 * images * model.layers * (12 * tokens * model.hidden**2 + 2 * tokens**2 * model.hidden)
    weights, numbers = _WIDTH * model.parameters, tokens * model.hidden
    held = _WIDTH * (HELD * numbers + 3 * model.image_size**2)
    travelled = _WIDTH * 2 * WRITTEN * images * model.layers * numbers
    rate = place.flops["bfloat16"]
    parts = (
        Part("weights", Resource.WEIGHTS, weights, "2 bytes · parameters"),
        Part("a block's working set", Resource.ACTIVATIONS, batch * held,
             f"2 bytes · batch · ({HELD}·N·hidden + 3·size²)"),
        Part("blocks", Resource.FLOPS, blocks, "2 · images · layers · (12·N·hidden² + 2·N²·hidden)"),
    )  # fmt: skip
    seconds = {
        "arithmetic": blocks / rate,
        "activations' traffic": travelled / place.bandwidth,
        "weights' traffic": images / batch * weights / place.bandwidth,
    }
    now = Account(parts, seconds, place.memory, rate, "a block's MLP runs")
    facts: dict[str, float | str] = {
        "images": images, "image_size": model.image_size, "patch": model.patch, "hidden": model.hidden,
        "layers": model.layers, "traffic_seconds": seconds["activations' traffic"],
    }  # fmt: skip
    room = place.memory - weights
    reach = Reach(
        "as it is",
        max(0, int(room / (_WIDTH * batch * HELD * model.hidden))),
        max(0, int(room / held)),
        max(0, int((place.memory - batch * held) / _WIDTH)),
    )
    said = f"{images} images through {model.name}, {batch} at once ({tokens} tokens each), {place.name}"
    return Advice(said, now, offers(Workload(Task.IMAGE_INFERENCE, facts), now), (), [reach])
