"""Earlier ways to shorten the sequence, behind the same interface, written from their papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thrifty.inference.token_reduction.config import EViTConfig, PoolConfig, ToMeConfig
from thrifty.inference.token_reduction.rivals.evit import EViTReducer
from thrifty.inference.token_reduction.rivals.pool import PoolReducer
from thrifty.inference.token_reduction.rivals.tome import ToMeReducer

RIVALS: dict[type, Callable[..., Any]] = {ToMeConfig: ToMeReducer, EViTConfig: EViTReducer, PoolConfig: PoolReducer}
