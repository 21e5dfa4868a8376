"""Two processes that talk by gloo: exact gradients, each communicated once; the command under torchrun."""

import json
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "distributed_worker.py"


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", pytest.param("fsdp2", marks=pytest.mark.ci)])
def test_two_processes_equal_one(torchrun, kind):
    torchrun(WORKER, kind, PYTHONPATH=str(WORKER.parent))


@pytest.mark.dist
@pytest.mark.slow
def test_the_command_trains_the_same_in_two_processes(torchrun, tmp_path):
    """Data in parallel, and with weights sharded: the losses of one process with twice the batch."""
    from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=384, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    ByT5Tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "data.txt").write_text("".join(f"def f_{n}(x): return x + {n}\n" for n in range(60)))
    arguments = ["-m", "thrifty.cli", "streambp", "train", tmp_path / "model", "--data"]
    arguments += [tmp_path / "data.txt", "--length", "64", "--layer-chunk", "20", "--steps", "3", "--lr", "0.01"]
    found = []
    for name, processes, extra in (("one", 1, ["--batch", "2"]), ("ddp", 2, []), ("fsdp", 2, ["--fsdp"])):
        out = torchrun(*arguments, "--out", tmp_path / name, *extra, processes=processes)
        found.append(json.loads(out))
    assert found[0]["last_loss"] < found[0]["first_loss"]
    for other in found[1:]:
        assert other == pytest.approx(found[0], abs=1e-5)
