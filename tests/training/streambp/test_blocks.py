"""Decoder layers of one's own."""

import pytest
import torch

from thrifty.training.streambp import StreamBPConfig, stream_block


@pytest.mark.parametrize("window", [None, 4])
def test_layers_of_ones_own(window):
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    to_keys, to_values, mix = (make(6, 6).requires_grad_() for _ in range(3))
    hidden, padding = make(2, 13, 6).requires_grad_(), torch.ones(2, 13, dtype=torch.bool)
    padding[0, 10:] = False

    def kv(h, positions):
        return (h @ to_keys * (1 + positions[:, None] / 9))[:, None], (h @ to_values)[:, None]

    def block(h, keys, values, mask, positions):
        scores = (h[:, None] @ keys.transpose(-1, -2)).masked_fill(~mask.rows(), float("-inf"))
        return h + torch.tanh((scores.softmax(-1) @ values)[:, 0] @ mix)

    inputs = (hidden, to_keys, to_values, mix)
    upstream = make(2, 13, 6)
    found = []
    for chunk in (13, 4, 1):
        config = StreamBPConfig(layer_chunk_size=chunk)
        output = stream_block(kv, block, hidden, inputs[1:], padding_mask=padding, window=window, config=config)
        found.append((output.detach(), *torch.autograd.grad(output, inputs, upstream)))
    for other in found[1:]:
        assert all(torch.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in zip(found[0], other, strict=True))


def test_linear_toy():
    """Paper, appendix A: Y = X W1, Z = Y W2, L = sum Z; closed form."""
    x, w1, w2 = torch.randn(1, 12, 4), torch.randn(4, 5).requires_grad_(), torch.randn(5, 4).requires_grad_()
    output = stream_block(
        lambda h, _: (h[:, None], h[:, None]),
        lambda h, *_: h @ w1 @ w2,
        x,
        (w1, w2),
        config=StreamBPConfig(layer_chunk_size=5),
    )
    output.sum().backward()
    ones = torch.ones(12, 4)
    assert torch.allclose(w1.grad, x[0].t() @ (ones @ w2.t()), rtol=1e-4)
    assert torch.allclose(w2.grad, (x[0] @ w1).t() @ ones, rtol=1e-4)


def test_functions_and_inputs_of_another_shape_are_named():
    hidden = torch.zeros(2, 6, 4)

    def attend(h, *_):
        return h

    def streamed(kv, block=attend, **options):
        return stream_block(kv, block, options.pop("hidden", hidden), [], config=StreamBPConfig(4), **options)

    fits = lambda h, _: (h[:, None], h[:, None])  # noqa: E731
    for message, arguments in {
        r"kv: expected keys of shape \[2, kv heads, 4, dim\], got \(2, 4, 1, 4\)": (lambda h, _: (h[:, :, None],) * 2,),
        "kv: expected values": (lambda h, _: (h[:, None], h),),
        r"block: expected \[2, 4, hidden\]": (fits, lambda h, *_: h[:, :1]),
    }.items():
        with pytest.raises(ValueError, match=message):
            streamed(*arguments)
    for name, value in {
        "hidden": torch.zeros(6, 4), "positions": torch.arange(5), "padding_mask": torch.ones(2, 5), "window": 0,
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=f"{name}: expected"):
            streamed(fits, **{name: value})


def test_the_linear_toy_holds_the_share_of_a_chunk():
    """Paper, appendix A: between input and output nothing is as long as the sequence."""
    lengths = []

    def block(h, *_):
        lengths.append(h.shape[1])
        return h @ torch.eye(4, requires_grad=True)

    x = torch.randn(1, 20, 4, requires_grad=True)
    stream_block(lambda h, _: (h[:, None], h[:, None]), block, x, [], config=StreamBPConfig(5)).sum().backward()
    assert set(lengths) == {5}
    assert torch.equal(x.grad, torch.ones_like(x))
