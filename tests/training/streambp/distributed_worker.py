"""Run by torchrun in two processes: a streamed step under DDP or FSDP2 against one process on the whole batch."""

import sys

import torch
import torch.distributed as dist
from families import error, make_batch, make_model, reference
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from thrifty.training.streambp import enable_streambp


def main(kind):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    inputs, labels = make_batch("right", batch=4)
    model = make_model("starcoder2")
    items = 40
    _, wanted = reference(model, inputs, labels, items)
    mine = slice(2 * rank, 2 * rank + 2)
    inputs = {name: value[mine] for name, value in inputs.items()}
    chunk = 5
    calls = {"n": 0}
    if kind == "ddp":
        enable_streambp(model, layer_chunk_size=chunk)
        wrapped = DistributedDataParallel(model)

        def count(state, bucket):
            calls["n"] += bucket.buffer().numel()
            summed = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return summed.then(lambda future: future.value()[0])

        wrapped.register_comm_hook(None, count)
    else:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        model.set_gradient_divide_factor(1.0)
        for layer in model.model.layers:
            layer.set_gradient_divide_factor(1.0)
        enable_streambp(model, layer_chunk_size=chunk)
        wrapped = model
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        wrapped(**inputs, labels=labels[mine], num_items_in_batch=items).loss.backward()
    got = {}
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        got[name] = grad.full_tensor() if hasattr(grad, "full_tensor") else grad
    assert error(got, wanted) < 1e-10, error(got, wanted)
    if kind == "ddp":
        assert calls["n"] == sum(p.numel() for p in wanted.values()), "each gradient is reduced once"
    else:
        scattered = sum(event.count for event in profile.key_averages() if event.key == "c10d::_reduce_scatter_base_")
        groups = len(model.model.layers) + 1
        assert scattered == groups, f"{scattered} reductions for {groups} groups of parameters"
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
