"""TRL's trainers with a streamed model: SFT, DPO and GRPO.

Nothing of their losses is written again. The trainers ask the model for log-probabilities by
``model(..., fused_lm_head=True)``; a streaming model answers that call itself.
"""

from __future__ import annotations

from typing import Any, Literal

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.model import StreamBPHandle, enable_streambp
from thrifty.training.streambp.model_head import TRLHead

_trl = require("trl", extra="llm")


class _Streams:
    """Switches streaming on when the trainer has made its model ready.

    Args:
        *args: TRL's.
        streambp: The settings of streaming.
        head: ``"streambp"``, or ``"trl"`` to keep TRL's fused head and stream the layers only.
        **kwargs: TRL's.
    """

    streambp: StreamBPHandle
    _foresee = False

    def __init__(
        self,
        *args: Any,
        streambp: StreamBPConfig | None = None,
        head: Literal["streambp", "trl"] = "streambp",
        **kwargs: Any,
    ) -> None:
        one_of("head", head, ("streambp", "trl"))
        super().__init__(*args, **kwargs)
        own = "streambp" if head == "streambp" else "own"
        self.streambp = enable_streambp(self.model, streambp, head=own)  # type: ignore[attr-defined, arg-type]
        self.streambp.trl = TRLHead(
            temperature=getattr(self, "temperature", 1.0),
            in_float32=getattr(self.args, "cast_lm_head_to_fp32", False),  # type: ignore[attr-defined]
            foresee=self._foresee,
        )


class StreamSFTTrainer(_Streams, _trl.SFTTrainer):  # type: ignore[misc, name-defined]
    """``trl.SFTTrainer`` whose backward pass is streamed; takes ``streambp=StreamBPConfig(...)`` beside its arguments.

    Args:
        *args: Those of ``trl.SFTTrainer``.
        streambp: The settings of streaming.
        head: ``"trl"`` keeps TRL's fused head.
        **kwargs: Those of ``trl.SFTTrainer``.

    Example:
        >>> from datasets import Dataset
        >>> from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM
        >>> small = LlamaConfig(vocab_size=384, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...     num_attention_heads=2)
        >>> trainer = StreamSFTTrainer(
        ...     LlamaForCausalLM(small),
        ...     _trl.SFTConfig("out", report_to="none", use_cpu=True, bf16=False),
        ...     train_dataset=Dataset.from_dict({"text": ["long text"] * 8}),
        ...     processing_class=ByT5Tokenizer(),
        ...     streambp=StreamBPConfig(layer_chunk_size=4),
        ... )
        >>> trainer.streambp.config.layer_chunk_size  # and trainer.train() as ever
        4

    Source:
        Ours, for TRL 1.16; the losses are TRL's.
    """

    _foresee = True  # its loss is a sum of log-probabilities


class StreamDPOTrainer(_Streams, _trl.DPOTrainer):  # type: ignore[misc, name-defined]
    """``trl.DPOTrainer`` whose backward pass is streamed; takes ``streambp=StreamBPConfig(...)`` beside its arguments.

    Args:
        *args: Those of ``trl.DPOTrainer``.
        streambp: The settings of streaming.
        head: ``"trl"`` keeps TRL's fused head.
        **kwargs: Those of ``trl.DPOTrainer``.

    Example:
        >>> from datasets import Dataset
        >>> from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM
        >>> small = LlamaConfig(vocab_size=384, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...     num_attention_heads=2)
        >>> pairs = {"prompt": ["2 + 2 ="] * 8, "chosen": [" 4"] * 8, "rejected": [" 5"] * 8}
        >>> trainer = StreamDPOTrainer(
        ...     LlamaForCausalLM(small),
        ...     ref_model=LlamaForCausalLM(small),  # a model loaded from a folder finds its own
        ...     args=_trl.DPOConfig("out", report_to="none", use_cpu=True, bf16=False),
        ...     train_dataset=Dataset.from_dict(pairs),
        ...     processing_class=ByT5Tokenizer(),
        ...     streambp=StreamBPConfig(layer_chunk_size=4),
        ... )
        >>> trainer.streambp.config.layer_chunk_size  # and trainer.train() as ever
        4

    Source:
        Ours, for TRL 1.16; the loss is TRL's.
    """


class StreamGRPOTrainer(_Streams, _trl.GRPOTrainer):  # type: ignore[misc, name-defined]
    """``trl.GRPOTrainer`` whose backward pass is streamed; takes ``streambp=StreamBPConfig(...)`` beside its arguments.

    Generation, rewards and everything else without gradients is TRL's.

    Args:
        *args: Those of ``trl.GRPOTrainer``.
        streambp: The settings of streaming.
        head: ``"trl"`` keeps TRL's fused head.
        **kwargs: Those of ``trl.GRPOTrainer``.

    Example:
        >>> from datasets import Dataset
        >>> from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM
        >>> small = LlamaConfig(vocab_size=384, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...     num_attention_heads=2)
        >>> trainer = StreamGRPOTrainer(
        ...     LlamaForCausalLM(small),
        ...     reward_funcs=lambda completions, **_: [float(len(text)) for text in completions],
        ...     args=_trl.GRPOConfig("out", report_to="none", use_cpu=True, bf16=False),
        ...     train_dataset=Dataset.from_dict({"prompt": ["2 + 2 ="] * 8}),
        ...     processing_class=ByT5Tokenizer(),
        ...     streambp=StreamBPConfig(layer_chunk_size=4),
        ... )
        >>> trainer.streambp.config.layer_chunk_size  # and trainer.train() as ever
        4

    Source:
        Ours, for TRL 1.16; the loss is TRL's.
    """
