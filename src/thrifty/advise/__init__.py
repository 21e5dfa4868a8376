"""Which method pays off for a workload: its ledger of bytes, FLOPs and seconds, and what each method would change."""

from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.contrastive import advise_contrastive
from thrifty.advise.deciding import advise_decisions
from thrifty.advise.federated import advise_federated
from thrifty.advise.filming import advise_videos
from thrifty.advise.hardware import Device, Optimizer, device, optimizer
from thrifty.advise.offers import Offer
from thrifty.advise.reach import Reach
from thrifty.advise.recurrent import advise_sequences
from thrifty.advise.rehearsal import Phases, rehearse
from thrifty.advise.selecting import advise_data
from thrifty.advise.serving import advise_serving
from thrifty.advise.show import show, to_json
from thrifty.advise.tuning import advise_training, training_job

__all__ = [
    "Account",
    "Advice",
    "Device",
    "Offer",
    "Optimizer",
    "Part",
    "Phases",
    "Reach",
    "advise_contrastive",
    "advise_data",
    "advise_decisions",
    "advise_federated",
    "advise_sequences",
    "advise_serving",
    "advise_training",
    "advise_videos",
    "device",
    "optimizer",
    "rehearse",
    "show",
    "to_json",
    "training_job",
]
