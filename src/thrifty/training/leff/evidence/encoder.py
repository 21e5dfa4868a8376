"""MiniLM as a classifier: the mean of its last hidden states, as it was pretrained, and one linear layer."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import BertConfig, BertModel, BertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class SentenceClassifier(BertPreTrainedModel):  # type: ignore[no-untyped-call]
    """A BERT without its pooler, whose tokens are averaged: what all-MiniLM-L6-v2 was trained for.

    Args:
        config: Of the encoder; ``num_labels`` are the classes.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)  # type: ignore[arg-type]
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Int[Tensor, "batch token"],
        attention_mask: Int[Tensor, "batch token"],
        labels: Int[Tensor, " batch"] | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput:
        """Return logits, and the cross-entropy where there are labels; padding does not count."""
        hidden: Float[Tensor, "batch token width"] = self.bert(input_ids, attention_mask, **options).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        logits = self.classifier((hidden * weights).sum(1) / weights.sum(1).clamp_min(1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def load(folder: Any, classes: int) -> SentenceClassifier:
    """Return the encoder of a folder under a head that torch's global generator draws; without dropout.

    Runs are too short for anybody to see a sentence twice.
    """
    still: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = SentenceClassifier.from_pretrained(
        folder, num_labels=classes, local_files_only=True, dtype=torch.float32, **still
    )
    found: SentenceClassifier = model.eval()  # type: ignore[no-untyped-call]
    return found
