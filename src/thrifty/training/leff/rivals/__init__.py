"""What one would federate with instead, each in its authors' form, in one harness: same data, steps and seeds."""

from thrifty.training.leff.rivals.averaging import Averaging, Centralised, LocalOnly
from thrifty.training.leff.rivals.harness import Leff, Method, federate
from thrifty.training.leff.rivals.lora import FedLoRA, FedRA, FlexLoRA, FLoRA, HetLoRA, SLoRA

__all__ = [
    "Averaging",
    "Centralised",
    "FLoRA",
    "FedLoRA",
    "FedRA",
    "FlexLoRA",
    "HetLoRA",
    "Leff",
    "LocalOnly",
    "Method",
    "SLoRA",
    "federate",
]
