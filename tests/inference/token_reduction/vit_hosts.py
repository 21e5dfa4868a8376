"""Small vision transformers of every host, from the real libraries."""

import warnings

import pytest
import torch


def timm_model(**kwargs):
    timm = pytest.importorskip("timm")
    name = kwargs.pop("name", "vit_tiny_patch16_224")
    shape = {"img_size": 40, "patch_size": 4, "embed_dim": 32, "depth": 6, "num_heads": 4, "num_classes": 7}
    return timm.create_model(name, **(shape | kwargs))


def hf(kind, **kwargs):
    t = pytest.importorskip("transformers")
    shape = {
        "hidden_size": 32, "num_hidden_layers": 6, "num_attention_heads": 4, "image_size": 40, "patch_size": 4,
    }  # fmt: skip
    if kind != "dinov2" and kind != "dinov2_registers":
        shape["intermediate_size"] = 64
    shape |= kwargs
    return {
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**shape, num_labels=7)),
        "deit": lambda: t.DeiTForImageClassificationWithTeacher(t.DeiTConfig(**shape, num_labels=7)),
        "dinov2": lambda: t.Dinov2Model(t.Dinov2Config(**shape, mlp_ratio=2)),
        "dinov2_registers": lambda: t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(**shape, mlp_ratio=2)),
        "clip": lambda: t.CLIPVisionModelWithProjection(t.CLIPVisionConfig(**shape, projection_dim=7)),
        "dinov3": lambda: t.DINOv3ViTModel(t.DINOv3ViTConfig(**shape, num_register_tokens=4, pos_embed_rescale=None)),
        "siglip": lambda: t.SiglipVisionModel(t.SiglipVisionConfig(**shape)),
    }[kind]()


def open_clip_tower(**kwargs):
    oc = pytest.importorskip("open_clip.transformer")
    shape = {"image_size": 40, "patch_size": 4, "width": 32, "layers": 6, "heads": 4, "mlp_ratio": 2.0, "output_dim": 7}
    return oc.VisionTransformer(**(shape | kwargs))


HOSTS = {
    "timm": timm_model,
    "timm-distilled": lambda: timm_model(name="deit_tiny_distilled_patch16_224"),
    "timm-registers": lambda: timm_model(reg_tokens=4, no_embed_class=True),
    "timm-no-class": lambda: timm_model(class_token=False, global_pool="avg"),
    "timm-qk-norm": lambda: timm_model(qk_norm=True),
    "timm-layer-scale": lambda: timm_model(init_values=0.1, drop_path_rate=0.1),
    "timm-map-pool": lambda: timm_model(class_token=False, global_pool="map"),
    "timm-gated": lambda: timm_model(attn_layer=_gated()),
    "timm-eva02": lambda: timm_model(name="eva02_tiny_patch14_224"),
    "timm-dinov3": lambda: timm_model(name="vit_small_patch16_dinov3", init_values=0.5),
    "timm-rope-mixed": lambda: timm_model(name="vit_small_patch16_rope_mixed_224", init_values=0.5),
    "hf-vit": lambda: hf("vit"),
    "hf-vit-eager": lambda: hf("vit", attn_implementation="eager"),
    "hf-deit": lambda: hf("deit"),
    "hf-dinov2": lambda: hf("dinov2"),
    "hf-dinov2-registers": lambda: hf("dinov2_registers"),
    "hf-dinov3": lambda: hf("dinov3"),
    "hf-clip": lambda: hf("clip"),
    "hf-siglip": lambda: hf("siglip"),
    "open_clip": open_clip_tower,
    "open_clip-layer-scale": lambda: open_clip_tower(ls_init_value=0.1, pool_type="avg"),
}


def _gated():
    from timm.layers import Attention

    class Gated(Attention):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs, gated=True)

    return Gated


def make(name, seed=0):
    """A host with weights of a size at which attention differs from image to image, no two norms or scales alike."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        model = HOSTS[name]().eval()
        with torch.no_grad():
            for parameter in sorted(model.parameters(), key=lambda p: p.ndim < 2):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def first(out):
    """The tensor that a host's output is about."""
    for name in ("logits", "image_embeds", "pooler_output", "last_hidden_state"):
        if getattr(out, name, None) is not None:
            return getattr(out, name)
    return out
