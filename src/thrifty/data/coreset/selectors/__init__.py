"""The selectors, all of one protocol: see ``coreset/subsets.py``."""

from thrifty.data.coreset.selectors.craig import Craig
from thrifty.data.coreset.selectors.crest import Crest
from thrifty.data.coreset.selectors.glister import Glister
from thrifty.data.coreset.selectors.gradmatch import GradMatch
from thrifty.data.coreset.selectors.infobatch import InfoBatch
from thrifty.data.coreset.selectors.random import RandomSubset

__all__ = ["Craig", "Crest", "Glister", "GradMatch", "InfoBatch", "RandomSubset"]
