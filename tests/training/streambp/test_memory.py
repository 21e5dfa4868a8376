"""What streaming allocates, and what it never does."""

import pytest
import torch
from families import V, make_batch, make_model

from thrifty.bench.memory import allocated_peak
from thrifty.training.streambp import StreamBPConfig, enable_streambp


def test_nothing_of_the_size_of_a_dense_mask_or_of_all_logits_exists():
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    model = make_model("mistral", sliding_window=9)
    inputs, labels = make_batch("right", batch=1, length=96)
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            sizes.extend(
                x.untyped_storage().nbytes() // x.element_size()
                for x in tree_leaves(found)
                if isinstance(x, torch.Tensor)
            )
            return found

    with enable_streambp(model, layer_chunk_size=8, head_chunk_size=8), Sizes():
        model(**inputs, labels=labels).loss.backward()
    assert max(sizes) < 96 * V, "neither length x length nor length x vocabulary"


@pytest.mark.parametrize("kind", ["none", "right"])
def test_a_step_allocates_less_than_checkpointing(kind):
    model = make_model("llama", hidden_size=32, intermediate_size=128, max_position_embeddings=1024).float()
    inputs, labels = make_batch(kind, batch=1, length=256)

    def peak():
        model.zero_grad(set_to_none=True)

        def step():
            model(**inputs, labels=labels, use_cache=False).loss.backward()

        return allocated_peak(step)

    model.activation_checkpointing_enable({"use_reentrant": False})
    plain = peak()
    model.activation_checkpointing_disable()
    with enable_streambp(model, layer_chunk_size=64):
        assert peak() < 0.6 * plain


def test_the_floor_is_what_the_planner_says_of_layer_inputs():
    """Below layers x batch x length x hidden only offloading helps."""
    from thrifty.training.streambp import estimate_peak_memory

    model = make_model("llama")
    inputs, labels = make_batch("none", length=64)
    kept = []

    def pack(tensor):
        kept.append(tensor.numel() * tensor.element_size() * (tensor.shape[-1:] == (24,) and tensor.ndim == 3))
        return tensor

    with (
        enable_streambp(model, layer_chunk_size=8),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
    ):
        model(**inputs, labels=labels)
    planned = estimate_peak_memory(model.config, 2, 64, itemsize=8, settings=StreamBPConfig(layer_chunk_size=8))
    final_norm = 2 * 64 * 24 * 8
    assert sum(kept) - final_norm == planned.inputs == 2 * final_norm
