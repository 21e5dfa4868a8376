"""A ViT with the attribute layout of transformers 4: nested attention, and an output that adds the residual."""

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.num_attention_heads, self.attention_head_size = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dropout_prob = 0.0


class Projection(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, x, _):
        return self.dense(x)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.output = SelfAttention(width, heads), Projection(width)

    def forward(self, x):
        inner = self.attention
        q, k, v = (
            f(x).unflatten(-1, (inner.num_attention_heads, -1)).transpose(1, 2)
            for f in (inner.query, inner.key, inner.value)
        )
        out = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.output(out.transpose(1, 2).flatten(2), x)


class Intermediate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(width, 2 * width)

    def forward(self, x):
        return nn.functional.gelu(self.dense(x))


class Output(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(2 * width, width)

    def forward(self, x, residual):
        return self.dense(x) + residual


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.intermediate, self.output = Intermediate(width), Output(width)
        self.layernorm_before, self.layernorm_after = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, hidden_states, head_mask=None) -> tuple[torch.Tensor]:
        x = self.attention(self.layernorm_before(hidden_states)) + hidden_states
        return (self.output(self.intermediate(self.layernorm_after(x)), x),)


class Patches(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.projection = nn.Conv2d(3, width, 4, 4)


class Embeddings(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cls_token, self.patch_embeddings = nn.Parameter(torch.randn(1, 1, width)), Patches(width)
        self.position_embeddings = nn.Parameter(torch.randn(1, 101, width))

    def forward(self, x):
        x = self.patch_embeddings.projection(x).flatten(2).transpose(1, 2)
        return torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1) + self.position_embeddings


class Encoder(nn.Module):
    def __init__(self, width, heads, depth):
        super().__init__()
        self.layer = nn.ModuleList([Layer(width, heads) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layer:
            x = layer(x)[0]
        return x


class OldViT(nn.Module):
    def __init__(self, width=32, heads=4, depth=6):
        super().__init__()
        self.embeddings, self.encoder, self.layernorm = (
            Embeddings(width),
            Encoder(width, heads, depth),
            nn.LayerNorm(width),
        )

    def forward(self, pixel_values):
        return self.layernorm(self.encoder(self.embeddings(pixel_values)))[:, 0]
