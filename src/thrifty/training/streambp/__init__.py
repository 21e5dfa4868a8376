"""StreamBP: exact back-propagation through long sequences, chunk by chunk."""

from typing import Any

from thrifty.training.streambp.attention import attention
from thrifty.training.streambp.blocks import stream_block
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.cross_entropy import streamed_linear_cross_entropy
from thrifty.training.streambp.grpo import streamed_grpo_loss
from thrifty.training.streambp.model import StreamBPHandle, enable_streambp
from thrifty.training.streambp.planner import MemoryEstimate, estimate_peak_memory
from thrifty.training.streambp.preference import streamed_dpo_loss
from thrifty.training.streambp.token_logps import streamed_token_logps

__all__ = [
    "MemoryEstimate",
    "StreamBPConfig",
    "StreamBPHandle",
    "StreamDPOTrainer",
    "StreamGRPOTrainer",
    "StreamSFTTrainer",
    "attention",
    "enable_streambp",
    "estimate_peak_memory",
    "stream_block",
    "streamed_dpo_loss",
    "streamed_grpo_loss",
    "streamed_linear_cross_entropy",
    "streamed_token_logps",
]


def __getattr__(name: str) -> Any:
    if name.startswith("Stream") and name.endswith("Trainer"):  # TRL takes seconds to import
        from thrifty.training.streambp import trainers

        return getattr(trainers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
