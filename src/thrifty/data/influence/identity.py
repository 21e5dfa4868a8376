"""What a store's key says of a model and of a user's function: digests that another process finds again."""

from __future__ import annotations

import functools
import hashlib
import json
from itertools import chain
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor, nn

from thrifty.data.influence.parameters import without_wrappers
from thrifty.data.influence.stores import tensors_digest

#: Entries of a configuration that say where a model lies, not what it computes.
_WHERE = frozenset({"_name_or_path", "transformers_version"})


def model_digest(model: nn.Module) -> str:
    """Return a digest of a model's parameters, buffers (packed weights are buffers) and configuration."""
    config: Any = getattr(without_wrappers(model), "config", None)
    settings = {k: v for k, v in config.to_dict().items() if k not in _WHERE} if hasattr(config, "to_dict") else {}
    about = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()
    return about[:16] + tensors_digest(chain(model.named_parameters(), model.named_buffers()))


def function_digest(function: Any, name: str) -> str:
    """Return a digest of a function's code and of what it captured; its attribute ``store_key`` is taken in its place.

    Args:
        function: A function, or a ``functools.partial`` of one.
        name: How messages call it.

    Raises:
        ValueError: It captured something that has no content to compare, or is another kind of callable.

    Example:
        >>> def scaled(by):
        ...     return lambda outputs, batch: by * outputs.logits.mean((1, 2))
        >>> function_digest(scaled(1), "loss_fn") == function_digest(scaled(2), "loss_fn")
        False
    """
    return hashlib.sha256(repr(_content(function, name)).encode()).hexdigest()


def _content(value: Any, name: str) -> Any:
    if (given := getattr(value, "store_key", None)) is not None:
        return str(given)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return [_content(item, name) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(_content(item, name)) for item in value)
    if isinstance(value, dict):
        return {str(key): _content(item, name) for key, item in value.items()}
    if isinstance(value, Tensor):
        return tensors_digest([("", value)])
    if isinstance(value, nn.Module):
        return tensors_digest(value.state_dict().items())
    if isinstance(value, CodeType):
        return [value.co_code.hex(), value.co_names, _content(value.co_consts, name)]
    if isinstance(value, functools.partial):
        return [_content(part, name) for part in (value.func, value.args, value.keywords)]
    if isinstance(value, FunctionType):
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        return _content((value.__code__, value.__defaults__, value.__kwdefaults__, captured), name)
    raise ValueError(
        f"store: {name} holds {type(value).__name__}, which cannot be told from another one; "
        f"give the function an attribute store_key, a text that changes with what it computes, or use no store"
    )
