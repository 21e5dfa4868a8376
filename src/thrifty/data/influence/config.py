"""The settings of a selection: one frozen record, saved beside results and stores as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from thrifty._common import settings as as_json
from thrifty._common.checks import number, one_of, whole
from thrifty.data.influence.embeddings import JVPEmbedding
from thrifty.data.influence.parameters import ParamFilter

SCHEMA, VERSION = "thrifty.influence", 1


@dataclass(frozen=True)
class InfluenceConfig:
    """How influence is measured and spread.

    Args:
        params: Which count: ``"mlp-out"``, ``"all"`` (or ``None``), a regular expression, a predicate on names.
        mask_numel: How many of their coordinates are kept, drawn at random; ``None`` for all.
        grad_dim: Gradients longer than this are projected to it.
        projection: ``"srht"``, ``"rademacher"``, or ``None`` for none.
        num_landmarks: Examples whose gradient is computed; as many as the pool has, or more, is the exact method.
        landmarks: ``"random"``, ``"kmeans++"`` (on embeddings), or indices into the pool.
        embedding: How the pool is embedded.
        kernel: ``"rbf"`` or ``"linear"``.
        damp: Ridge, in units of the kernel's mean diagonal.
        bandwidth: Of the RBF kernel, or the median distance of the landmarks.
        exact_landmarks: Landmarks keep their exact scores, instead of those that the regression gives them too.
        num_check: Extra examples whose gradients measure the propagation (beside leaving one landmark out, for free).
        order: 1, or 2 to count how examples act together (then ``aggregate="mean"``).
        hessian: ``"exact"``, or ``"ggn"``, the generalised Gauss-Newton matrix, which is positive semidefinite.
        batch_size: Examples a pass.
        seed: Of every random choice.

    Raises:
        ValueError: A setting is unknown or out of its range, or two of them do not go together.

    Example:
        >>> config = InfluenceConfig(num_landmarks=512, embedding=JVPEmbedding(num_blocks=2))
        >>> InfluenceConfig.from_json(config.to_json()) == config
        True

    Source:
        arXiv 2505.19051, and the defaults of its authors' code, except for the pooling of embeddings and
        ``perturb_embeddings``, which are ours (see the card).
    """

    params: ParamFilter = "mlp-out"
    mask_numel: int | None = None
    grad_dim: int = 32768
    projection: Literal["srht", "rademacher"] | None = "srht"
    num_landmarks: int = 4096
    landmarks: Any = "random"
    embedding: JVPEmbedding = field(default_factory=JVPEmbedding)
    kernel: Literal["rbf", "linear"] = "rbf"
    damp: float = 1e-2
    bandwidth: float | Literal["median"] = "median"
    exact_landmarks: bool = False
    num_check: int = 0
    order: Literal[1, 2] = 1
    hessian: Literal["exact", "ggn"] = "exact"
    batch_size: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("grad_dim", "num_landmarks", "batch_size"):
            whole(name, getattr(self, name))
        whole("num_check", self.num_check, least=0)
        number("damp", self.damp, "a number of at least 0", least=0)
        if self.bandwidth != "median" and not float(self.bandwidth) > 0:
            raise ValueError(f"bandwidth: expected 'median' or a number above 0, got {self.bandwidth}")
        one_of("projection", self.projection, ("srht", "rademacher", None))
        one_of("kernel", self.kernel, ("rbf", "linear"))
        one_of("order", self.order, (1, 2))
        one_of("hessian", self.hessian, ("exact", "ggn"))
        if self.order == 2 and self.num_check:
            raise ValueError(
                f"num_check: at order=2 the propagation is measured by leaving one landmark out; expected 0, got "
                f"{self.num_check}"
            )
        if isinstance(self.landmarks, str):
            one_of("landmarks", self.landmarks, ("random", "kmeans++"))

    def to_json(self) -> str:
        """Return it as JSON; what is a function or a list of indices is named, not kept."""
        return as_json.dump(self.settings(), SCHEMA, VERSION, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> InfluenceConfig:
        """Read it back.

        Raises:
            ValueError: It is of another schema, has an unknown key, or named something that JSON does not carry.
        """
        found = as_json.parse(text, SCHEMA, VERSION, known=[item.name for item in fields(cls)], name="config")
        embedding = found.pop("embedding", {})
        if not isinstance(embedding, dict):
            raise ValueError(f"config: expected the settings of the embedding, got {embedding!r}")
        if embedding.pop("embed_fn", None) or found.get("landmarks") == "given":
            raise ValueError("config: it was made with a function or indices of the user's; give them again in code")
        return cls(embedding=JVPEmbedding(**embedding), **found)

    def settings(self) -> dict[str, Any]:
        """Return every setting as JSON can carry it."""
        found = asdict(self)
        found["embedding"] = self.embedding.settings()
        if callable(self.params):
            found["params"] = getattr(self.params, "__qualname__", type(self.params).__name__)
        if not isinstance(self.landmarks, str):
            found["landmarks"] = "given"
        return found
