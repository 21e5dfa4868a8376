"""A configuration on disk, as a user has one."""

import json

import pytest

TINY = {
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 65536,
}


@pytest.fixture
def write_config(tmp_path):
    """Write a configuration, changed as asked (``None`` drops a field); return its folder."""

    def write(**changes):
        fields = {name: value for name, value in {**TINY, **changes}.items() if value is not None}
        (tmp_path / "config.json").write_text(json.dumps(fields))
        return str(tmp_path)

    return write
