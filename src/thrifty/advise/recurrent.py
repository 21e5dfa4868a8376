"""The ledger of training a recurrent layer on long sequences: what it keeps to be differentiated, and arithmetic."""

from __future__ import annotations

from pathlib import Path

from thrifty._common.checks import one_of, whole
from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise import hardware
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.offers import offers

#: Gates of a cell (products with the input and with the state), and numbers that a step and channel leaves behind.
CELLS = {"gru": (3, 4), "lstm": (4, 6)}


def advise_sequences(
    *,
    length: int,
    state: int,
    inputs: int = 0,
    batch: int = 1,
    layers: int = 1,
    rnn: str = "gru",
    device: str = "h100-80gb",
    profiles: str | Path | None = None,
) -> Advice:
    """Say what training a recurrent layer on sequences takes, and which methods would change it.

    Args:
        length: Steps of a sequence.
        state: Channels of the layer's state.
        inputs: Channels that it reads; 0: as many.
        batch: Sequences a step.
        layers: Of them, stacked.
        rnn: ``"gru"`` or ``"lstm"``, in float32.
        device: A profile's name or JSON file.
        profiles: A folder of further device profiles.

    Returns:
        The ledger of one update of the weights, and the offers.

    Raises:
        ValueError: A number is not positive, or the cell or device is unknown.

    Example:
        >>> advice = advise_sequences(length=17_984, state=64, batch=32, layers=6)
        >>> [offer.method for offer in advice.offers if offer.applies]
        ['lrcssm']
    """
    for name, value in (("length", length), ("state", state), ("batch", batch), ("layers", layers)):
        whole(name, value)
    whole("inputs", inputs, least=0)
    one_of("rnn", rnn, CELLS)
    place = hardware.device(device, profiles)
    gates, kept = CELLS[rnn]
    width = inputs or state
    weights = layers * gates * state * (width + state)
    cells = layers * batch * length
    flops = 6.0 * cells * gates * state * (width + state)
    parts = (
        Part("weights", Resource.WEIGHTS, 4.0 * weights, "4 bytes · layers · gates · state · (inputs + state)"),
        Part("gradients", Resource.GRADIENTS, 4.0 * weights, "as the weights"),
        Part("optimizer state", Resource.OPTIMIZER_STATE, 8.0 * weights, "adamw: twice the weights"),
        Part("kept states and gates", Resource.ACTIVATIONS, 4.0 * cells * state * kept,
             f"4 bytes · layers · batch · length · state · {kept}"),
        Part("both passes", Resource.FLOPS, flops, f"6 · layers · batch · length · {gates} · state · (inputs + state)"),
    )  # fmt: skip
    rate = place.flops["float32"]
    # Each step waits for the one before it: it reads the weights anew, forward and twice backward.
    seconds = {"arithmetic": flops / rate, "memory traffic": 3.0 * length * 4 * weights / place.bandwidth}
    now = Account(parts, seconds, place.memory, rate, "the backward pass begins")
    facts: dict[str, float | str] = {
        "sequence": length, "state": state, "input": width, "batch": batch, "layers": layers, "rnn": rnn,
    }  # fmt: skip
    said = f"training {layers} x {rnn} of {state} channels on {batch} sequences of {length} steps, {place.name}"
    return Advice(said, now, offers(Workload(Task.SEQUENCE_CLASSIFICATION, facts), now))
