"""How many tokens leave a vision transformer, where, and what stands in for them; as one frozen, saveable setting.

A schedule is a list of layers (numbered from 1) with the share of the remaining patch tokens that each keeps. The
window of a layer is the number of DC cells along each side of the image: 1 is one global DC token, 2 is four.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, get_args

from thrifty._common import settings
from thrifty._common.checks import flag, number, one_of, whole

SCHEMA, VERSION = "thrifty.token-reduction", 1

Score = Literal["attn_mean", "cos_dc", "qk_mean", "cls", "random", "low"]
Restoring = Literal["dc", "residual"]


def tokens_kept(keep: float, tokens: int, rounding: str = "ceil") -> int:
    """Return how many of ``tokens`` a share keeps, at least one; a product that is whole up to rounding stays whole."""
    share = keep * tokens
    return max(1, math.ceil(share - 1e-6) if rounding == "ceil" else math.floor(share + 1e-6))


def published_layers(depth: int) -> tuple[int, ...]:
    """Return where the paper reduces: at layers 4, 7 and 10 of twelve, and in proportion in other depths.

    Source:
        arXiv 2511.21477, section 4 (1/3, 7/12 and 5/6 of the depth).

    Example:
        >>> published_layers(12), published_layers(24)
        ((4, 7, 10), (8, 14, 20))
    """
    return tuple(round(depth * share) for share in (1 / 3, 7 / 12, 5 / 6))


def _schedule(layers: Any, keep: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Check a schedule, one share for all layers included."""
    layers = _whole_numbers("layers", layers)
    if not layers:
        raise ValueError("layers: expected at least one whole number, got none")
    if any(n < 1 for n in layers):
        raise ValueError(f"layers: they are numbered from 1, got {layers} (EViT's drop_loc counts from 0: add 1)")
    if list(layers) != sorted(set(layers)):
        raise ValueError(f"layers: expected strictly rising numbers, got {layers}")
    try:
        shares = (float(keep),) * len(layers) if isinstance(keep, Real) else tuple(map(float, keep))
    except (TypeError, ValueError):
        shares = ()
    if not shares or isinstance(keep, (str, bool)):
        raise ValueError(f"keep: expected a share in (0, 1], or one for each layer, got {keep!r}")
    if len(shares) != len(layers):
        raise ValueError(f"keep: expected {len(layers)} shares, one a layer, got {len(shares)}: {shares}")
    if not all(0 < share <= 1 for share in shares):
        raise ValueError(f"keep: expected shares in (0, 1], got {shares}")
    return layers, shares


def _whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    """Return whole numbers of any kind (numpy's included) as Python's."""
    try:
        return tuple(whole(name, n, least=None) for n in given)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected a sequence of whole numbers, got {given!r}") from None


class _Saved:
    """JSON of a setting, with the name of its method; an unknown key is an error."""

    method: ClassVar[str]

    def to_json(self) -> str:
        """Return the setting as JSON, with schema, version and method."""
        found = {"method": self.method} | asdict(self)  # type: ignore[call-overload]
        return settings.dump(found, SCHEMA, VERSION)


@dataclass(frozen=True)
class FreqReduceConfig(_Saved):
    """Keep the tokens that feed the high-frequency part of attention, and a few DC tokens for the rest.

    Args:
        layers: Where tokens are dropped, numbered from 1, rising.
        keep: Share of the remaining patch tokens that each of these layers keeps, or one share for all.
        window: DC cells along each side of the image at each of these layers; each a multiple of the next. By default 2
            at the first and 1 at the others. 0 at every layer makes no DC token: dropped tokens are gone.
        score: ``"attn_mean"``: the attention a token receives, over all queries and heads (equation 7); ``"cos_dc"``:
            least like the mean token; ``"qk_mean"``: the sum of queries times the key, no attention matrix needed;
            ``"cls"``: attention of the class token (EViT's); ``"random"``; ``"low"``: the least attended (an ablation).
        where: Drop between attention and MLP (``"mid"``, which gives the published MACs) or after the MLP (``"end"``).
        rounding: Of ``keep`` times the tokens.
        dc_update: How earlier DC tokens enter later ones: by the patches that they stand for, or each as one token.
        reweight: Blocks with learnable weights of attention's high-pass part and of its DC columns, one a head:
            from the first layer of the schedule on (``"after"``), ``"all"``, or ``"none"``.
        beta_init: Start of the DC columns' weight; 0 leaves the model as it was, 1 is the paper's, taken literally.
        dc_pos_embed: ``"learned"`` adds a vector of its own, at first zero, to each new DC token.
        dc_size_bias: Add the log of the patches that a DC token stands for to its logits. Not in the paper.
        seed: Of ``score="random"``.

    Raises:
        ValueError: A field is out of range, or the schedule's fields differ in length; the message names the field.

    Example:
        >>> config = FreqReduceConfig(keep=0.5)
        >>> config.keep, config.window
        ((0.5, 0.5, 0.5), (2, 1, 1))
        >>> config_from_json(config.to_json()) == config
        True

    Source:
        arXiv 2511.21477, sections 3.2 and 3.3, equations 7 to 12.
    """

    method: ClassVar[str] = "frequency"

    layers: tuple[int, ...] = (4, 7, 10)
    keep: tuple[float, ...] | float = 0.7
    window: tuple[int, ...] | int | None = None
    score: Score = "attn_mean"
    where: Literal["mid", "end"] = "mid"
    rounding: Literal["ceil", "floor"] = "ceil"
    dc_update: Literal["weighted", "uniform"] = "weighted"
    reweight: Literal["after", "all", "none"] = "after"
    beta_init: float = 0.0
    dc_pos_embed: Literal["none", "learned"] = "none"
    dc_size_bias: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        layers, keep = _schedule(self.layers, self.keep)
        window: Any = (2, *(1 for _ in layers[1:])) if self.window is None else self.window
        window = _whole_numbers("window", (window,) * len(layers) if isinstance(window, Integral) else window)
        if len(window) != len(layers):
            raise ValueError(f"window: expected {len(layers)} numbers, one a layer, got {len(window)}: {window}")
        number("beta_init", self.beta_init, "a finite number")
        flag("dc_size_bias", self.dc_size_bias)
        if whole("seed", self.seed, least=0) >= 2**32:
            raise ValueError(f"seed: expected a whole number from 0, below 2**32, got {self.seed!r}")
        if any(w < 0 for w in window):
            raise ValueError(f"window: expected whole numbers from 0, got {window}")
        if 0 in window and any(window):
            raise ValueError(f"window: 0 (no DC token) holds for all layers or for none, got {window}")
        for before, after in itertools.pairwise(window):
            if after and before % after:
                raise ValueError(f"window: each must be a multiple of the next, so that cells nest, got {window}")
        for name, kind in _CHOICES.items():
            one_of(name, getattr(self, name), get_args(kind))
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "keep", keep)
        object.__setattr__(self, "window", window)


_CHOICES = {
    "score": Score,
    "where": Literal["mid", "end"],
    "rounding": Literal["ceil", "floor"],
    "dc_update": Literal["weighted", "uniform"],
    "reweight": Literal["after", "all", "none"],
    "dc_pos_embed": Literal["none", "learned"],
}


@dataclass(frozen=True)
class ToMeConfig(_Saved):
    """Merge the most similar pairs of tokens (token merging).

    Args:
        layers: Where tokens are merged, numbered from 1; ``None``: in every layer (needs ``r``).
        keep: Share of the tokens that each of these layers keeps, at least 0.5 (half can be merged at once); 0.7 where
            ``r`` is not given.
        r: Merge so many tokens at each layer instead, as the paper does.
        proportional: Add the log of a token's size to its logits, so that merged tokens weigh what they stand for.

    Raises:
        ValueError: A field is out of range, or both ``keep`` and ``r`` are given.

    Example:
        >>> ToMeConfig(layers=None, r=13)  # as its authors run it
        ToMeConfig(layers=None, keep=None, r=13, proportional=True)

    Source:
        Bolya et al., "Token Merging: Your ViT But Faster", ICLR 2023, arXiv 2210.09461, section 3.
    """

    method: ClassVar[str] = "tome"

    layers: tuple[int, ...] | None = (4, 7, 10)
    keep: tuple[float, ...] | float | None = None
    r: int | None = None
    proportional: bool = True

    def __post_init__(self) -> None:
        flag("proportional", self.proportional)
        if self.keep is not None and self.r is not None:
            raise ValueError(f"keep: give one of keep and r, got keep={self.keep} and r={self.r}")
        if self.keep is None and self.r is None:
            if self.layers is None:
                raise ValueError("r: merging in every layer (layers=None) needs the tokens to merge at each, got None")
            object.__setattr__(self, "keep", 0.7)
        if self.r is not None:
            object.__setattr__(self, "r", whole("r", self.r, what="a whole number of tokens to merge a layer,"))
        if self.keep is not None:
            if self.layers is None:
                raise ValueError("layers: expected numbers beside keep, got None")
            layers, keep = _schedule(self.layers, self.keep)
            if min(keep) < 0.5:
                raise ValueError(f"keep: merging pairs keeps at least 0.5 of the tokens of a layer, got {keep}")
            object.__setattr__(self, "keep", keep)
            object.__setattr__(self, "layers", layers)
        elif self.layers is not None:
            object.__setattr__(self, "layers", _schedule(self.layers, 1.0)[0])


@dataclass(frozen=True)
class EViTConfig(_Saved):
    """Keep the tokens that the class token attends to, and fuse the others into one.

    Args:
        layers: Where tokens are dropped, numbered from 1, rising.
        keep: Share of the remaining tokens that each keeps, or one share for all.
        fuse: Add the mean of the dropped tokens, weighted by the class token's attention.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> EViTConfig(layers=(4, 7), keep=0.6).keep
        (0.6, 0.6)

    Source:
        Liang et al., "Not All Patches are What You Need: Expediting Vision Transformers via Token Reorganizations",
        ICLR 2022, arXiv 2202.07800, section 3.
    """

    method: ClassVar[str] = "evit"

    layers: tuple[int, ...] = (4, 7, 10)
    keep: tuple[float, ...] | float = 0.7
    fuse: bool = True

    def __post_init__(self) -> None:
        flag("fuse", self.fuse)
        layers, keep = _schedule(self.layers, self.keep)
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "keep", keep)


@dataclass(frozen=True)
class PoolConfig(_Saved):
    """Average the patch tokens over a coarser grid (spatial pooling).

    Args:
        layers: Where tokens are pooled, numbered from 1, rising.
        keep: Share of the remaining tokens; each side of the grid is scaled by its root and rounded up.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> PoolConfig(layers=(4,), keep=0.25)
        PoolConfig(layers=(4,), keep=(0.25,))
    """

    method: ClassVar[str] = "pool"

    layers: tuple[int, ...] = (4, 7, 10)
    keep: tuple[float, ...] | float = 0.7

    def __post_init__(self) -> None:
        layers, keep = _schedule(self.layers, self.keep)
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "keep", keep)


Config = FreqReduceConfig | ToMeConfig | EViTConfig | PoolConfig

_KINDS: dict[str, type[Config]] = {kind.method: kind for kind in (FreqReduceConfig, ToMeConfig, EViTConfig, PoolConfig)}

#: Methods by the name they have in tables and on the command line.
METHODS = ("frequency", "tome", "evit", "pool", "random", "low")


def named(method: str, layers: tuple[int, ...] = (4, 7, 10), keep: tuple[float, ...] | float = 0.7) -> Config:
    """Return a method's setting for a schedule: ours, or one to set beside it.

    Args:
        method: ``"frequency"``, ``"tome"``, ``"evit"``, ``"pool"``, ``"random"`` (prune at random) or ``"low"`` (keep
            what the paper would drop).
        layers: Where, numbered from 1.
        keep: Shares of the remaining tokens.

    Raises:
        ValueError: There is no such method, or the schedule is not one.

    Example:
        >>> named("random", (4,), 0.5).score
        'random'
    """
    if method == "random":
        return FreqReduceConfig(layers, keep, window=0, score="random", reweight="none")
    if method == "low":
        return FreqReduceConfig(layers, keep, score="low", reweight="none")
    one_of("method", method, METHODS)
    return _KINDS[method](layers=layers, keep=keep)


def config_from_json(text: str) -> Config:
    """Return the setting that :meth:`FreqReduceConfig.to_json` (or a rival's) wrote.

    Args:
        text: JSON, with schema, version and the name of the method.

    Raises:
        ValueError: It is not JSON, of another schema or version, or has an unknown key.

    Example:
        >>> config_from_json(named("tome").to_json()) == named("tome")
        True
    """
    method = settings.parse(text, SCHEMA, VERSION, known=None, needed=("method",))["method"]
    one_of("method", method, _KINDS)
    kind = _KINDS[method]
    given = settings.parse(text, SCHEMA, VERSION, known=["method", *(field.name for field in fields(kind))])
    del given["method"]
    fitting: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    return kind(**fitting)
