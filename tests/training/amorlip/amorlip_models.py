"""Tiny models and data of both hosts, written into a folder."""

import io
import json
import tarfile

import torch

OPEN_CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16},
    "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 1},
}
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (20, 40, 230), "white": (250, 250, 250)}


def open_clip_config(folder, **more):
    path = folder / "tiny-clip.json"
    path.write_text(json.dumps(OPEN_CLIP | more))
    return path


def transformers_model(folder):
    """A CLIPModel with its processor, as ``save_pretrained`` writes them."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(vocab={token: place for place, token in enumerate(tokens)}, merges=[])
    processor = CLIPProcessor(
        CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}), tokenizer
    )
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = small | {
        "vocab_size": len(tokens), "max_position_embeddings": 12, "eos_token_id": len(tokens) - 1,
        "bos_token_id": len(tokens) - 2, "pad_token_id": len(tokens) - 1,
    }  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        vision = small | {"image_size": 16, "patch_size": 8}
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def pictures(folder, count=24):
    """Squares of four colours with captions: a .jsonl of pairs, and a folder a class."""
    from PIL import Image

    names = list(COLOURS)
    rows = []
    for place in range(count):
        name = names[place % len(names)]
        shade = tuple(max(0, value - place) for value in COLOURS[name])
        path = folder / "classes" / name / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), shade).save(path)
        rows.append({"image": str(path.relative_to(folder)), "caption": f"a {name} square"})
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "pairs.csv").write_text("image,caption\n" + "".join(f"{r['image']},{r['caption']}\n" for r in rows))
    return folder


def arguments(folder, **more):
    from transformers import TrainingArguments

    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
    return TrainingArguments(str(folder), **(quiet | {"remove_unused_columns": False} | more))


def clip_rows(count=16):
    rng = torch.Generator().manual_seed(0)
    return [
        {"pixel_values": torch.randn(3, 16, 16, generator=rng), "input_ids": torch.tensor([26, i % 24, 27])}
        for i in range(count)
    ]


def clip_model(**more):
    from transformers import CLIPConfig, CLIPModel

    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = small | {"vocab_size": 28, "max_position_embeddings": 8, "eos_token_id": 27}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        vision = small | {"image_size": 16, "patch_size": 8}
        return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8, **more))


def tar_of(path, samples):
    """Write members one after another: (name, bytes)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as packed:
        for name, content in samples:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def members(pairs):
    """Pairs as webdataset has them."""
    for place, (picture, caption) in enumerate(pairs):
        yield f"{place:05d}.png", picture.read_bytes()
        yield f"{place:05d}.txt", caption.encode()
