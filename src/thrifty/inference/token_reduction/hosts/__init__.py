"""The vision transformers that can be reduced: where their blocks are, and what is in a block.

Hosts are told by the attributes that they have, never by their class, so that neither timm nor open_clip is imported
and a model of one's own with the same layout will do. A block is taken apart into its attention (queries, keys, values
and what is done with the output) and its feed-forward half; every part that is called is the host's own.
"""

from thrifty.inference.token_reduction.hosts.block import Block, Heads, attend
from thrifty.inference.token_reduction.hosts.find import find_host
from thrifty.inference.token_reduction.hosts.host import Host

__all__ = ["Block", "Heads", "Host", "attend", "find_host"]
