"""Files of weights that are damaged, incomplete, or pickles in disguise: one line, and no code of theirs is run."""

import json
import os
import pickle

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from thrifty._common.weights import load_pretrained, load_saved, load_tensors, read_pretrained  # noqa: E402


class Touch:
    """Makes a file, should anyone unpickle it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def saved(tmp_path):
    torch.save({"a": torch.ones(3)}, tmp_path / "a.pt")
    safetensors.save_file({"a": torch.ones(3)}, tmp_path / "a.safetensors")
    return tmp_path


def test_sound_files_are_read(saved):
    assert load_saved(saved / "a.pt", name="checkpoint")["a"].tolist() == [1, 1, 1]
    assert load_tensors(saved / "a.safetensors", name="weights")["a"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: path.write_text("hello"),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: path.write_bytes(pickle.dumps({"a": Touch(path.parent / "ran")})),
    ],
    ids=["empty", "cut", "text", "noise", "pickle"],
)
def test_files_that_are_none(saved, damage):
    damage(saved / "a.pt")
    with pytest.raises(ValueError, match=r"^checkpoint: expected tensors and plain values .*a\.pt"):
        load_saved(saved / "a.pt", name="checkpoint")
    damage(saved / "a.safetensors")
    with pytest.raises(ValueError, match=r"^weights: expected a \.safetensors file, got .*which is damaged"):
        load_tensors(saved / "a.safetensors", name="weights")
    assert not (saved / "ran").exists()


def test_objects_in_what_torch_saved_are_refused(tmp_path):
    torch.save({"a": Touch(tmp_path / "ran")}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="holds something else"):
        load_saved(tmp_path / "a.pt", name="checkpoint")
    assert not (tmp_path / "ran").exists()


def test_missing_files_and_folders(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=r"^weights: expected a \.safetensors file, got none at"):
            load_tensors(place, name="weights")
        with pytest.raises(OSError, match=place.name):
            load_saved(place, name="checkpoint")


@pytest.fixture
def llama(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def change(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def with_code(folder):
    change(folder, model_type="ours", auto_map={"AutoConfig": "ours.Config", "AutoModelForCausalLM": "ours.Model"})
    (folder / "ours.py").write_text(f"import os\nos.mkdir({str(folder / 'ran')!r})\n")


def without_head(folder):
    from transformers import LlamaForCausalLM

    LlamaForCausalLM.from_pretrained(folder).model.save_pretrained(folder)


def pickled(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"a": Touch(folder / "ran")}, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: None, None),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 90), "cannot be read as a AutoModel"),
        (lambda folder: (folder / "config.json").write_text("[]"), "cannot be read as a AutoModel"),
        (lambda folder: change(folder, model_type="nope"), "does not recognize this architecture"),
        (lambda folder: change(folder, hidden_size=32), "cannot be read"),
        (lambda folder: change(folder, num_hidden_layers=2), "got none for 9 of them, first model.layers.1"),
        (without_head, "got none for 1 of them, first lm_head"),
        (pickled, "expected tensors alone in the files of .*, got pickled objects"),
        (with_code, "contains custom code"),
    ],
    ids=["sound", "cut", "list", "kind", "shape", "layers", "head", "pickle", "code"],
)
def test_models_that_are_none(llama, damage, says):
    from transformers import AutoModelForCausalLM

    damage(llama)
    if says is None:
        assert load_pretrained(AutoModelForCausalLM, llama).config.vocab_size == 50
        return
    with pytest.raises(ValueError, match=f"^model: .*{says}"):
        load_pretrained(AutoModelForCausalLM, llama)
    assert not (llama / "ran").exists()


def test_tokenizers_that_are_none(llama):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with pytest.raises(ValueError, match=r"^tokenizer: .*llama cannot be read as a AutoTokenizer"):
        read_pretrained(AutoTokenizer, llama, name="tokenizer")
    (llama / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (llama / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"^tokenizer: .*llama cannot be read as a AutoTokenizer"):
        read_pretrained(AutoTokenizer, llama, name="tokenizer")
    for kind, read in ((AutoTokenizer, read_pretrained), (AutoModelForCausalLM, load_pretrained)):
        with pytest.raises(FileNotFoundError, match=r"^model: expected the folder of a local model, got gpt2"):
            read(kind, "gpt2", name="model")
