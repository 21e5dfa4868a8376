"""A batched lossless speculative decoder for transformers models: rows accept as many draft tokens as each may."""

from thrifty.inference.speculation.decode.decoder import SpeculativeDecoder, SpeculativeOutput
from thrifty.inference.speculation.decode.stats import Round, SpeculativeStats

__all__ = ["Round", "SpeculativeDecoder", "SpeculativeOutput", "SpeculativeStats"]
