"""The network of the paper: encoder, blocks of recurrence and perceptron, decoder, pooling (arXiv 2505.21717, Fig. 1).

    encoder MLP p → H → H, L blocks, decoder MLP H → H → C at every step, mean over steps

A block, with LN a layer norm: y = LN(x), s = recurrence(y), then LN(MLP(s) + y) if D ≠ H; else r = LN(s + y) and
MLP(r) + r. The residual is taken from the normalised input, as in the authors' code.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Bool, Float
from safetensors.torch import save
from torch import Tensor, nn

from thrifty._common.files import write_whole
from thrifty._common.weights import load_tensors
from thrifty.models.lrcssm.cells.base import Initialisation
from thrifty.models.lrcssm.config import LrcSSMConfig, Pooling
from thrifty.models.lrcssm.inputs import check_input, make_mask
from thrifty.models.lrcssm.layer import DiagonalRNN
from thrifty.models.lrcssm.solvers.info import SolveInfo

WEIGHTS, CONFIG = "model.safetensors", "config.json"


class LrcSSMBlock(nn.Module):
    """One block: norm, recurrence, perceptron, residual.

    Args:
        d_model: Width H.
        d_state: State channels D.
        cell: Name of the cell, or a module: any layer ``(batch, time, H) → ((batch, time, ·), state)`` with
            ``output_size``.
        dropout: Share of activations dropped before the residual.
        affine: Let layer norms have weights.
        init: Of dense layers and LRC cells.
        options: Of :class:`DiagonalRNN`.

    Example:
        >>> block = LrcSSMBlock(32, 16)
        >>> block(torch.randn(2, 100, 32))[0].shape
        torch.Size([2, 100, 32])

    Source:
        arXiv 2505.21717, figure 1.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        cell: str | nn.Module = "lrc",
        dropout: float = 0.0,
        affine: bool = False,
        init: Initialisation = "standard",
        **options: Any,
    ) -> None:
        super().__init__()
        named = isinstance(cell, str)
        if cell in {"lrc", "stc", "ltc"}:
            options = {"init": init, **options}
        self.rnn = DiagonalRNN(cell, d_model, d_state, **options) if named else cell
        width: int = self.rnn.output_size  # type: ignore[union-attr, assignment]
        self.norm, self.post = (nn.LayerNorm(d_model, elementwise_affine=affine) for _ in range(2))
        self.mlp = mlp(width, d_model, d_model, init)
        self.dropout = nn.Dropout(dropout)
        self.narrow = width != d_model

    def forward(
        self, x: Float[Tensor, "batch time H"], h0: Tensor | None = None, **steps: Any
    ) -> tuple[Float[Tensor, "batch time H"], Tensor]:
        """Return (output, last state). ``steps``: ``mask``, ``lengths``, ``dt`` of the recurrence."""
        y = self.norm(x)
        s, h, *info = self.rnn(y, h0, **steps)  # type: ignore[operator]
        return self._after(s, y), (h, *info) if info else h  # type: ignore[return-value]

    def step(self, x: Float[Tensor, "batch H"], h: Tensor) -> tuple[Float[Tensor, "batch H"], Tensor]:
        """Take one step of a stream."""
        y = self.norm(x)
        s, h = self.rnn.step(y, h)  # type: ignore[operator, union-attr]
        return self._after(s, y), h

    def _after(self, s: Tensor, y: Tensor) -> Tensor:
        if self.narrow:
            out: Tensor = self.post(self.dropout(self.mlp(s)) + y)
            return out
        r = self.post(s + y)
        return r + self.dropout(self.mlp(r))  # type: ignore[no-any-return]


class LrcSSMModel(nn.Module, PyTorchModelHubMixin):
    """Classifier or regressor of sequences: the paper's network.

    Args:
        in_channels: Width of the input; the other settings are those of :class:`LrcSSMConfig`.
        out_features: Classes, or values to predict.
        layers: Recurrent layers in place of those that the settings name, one a block: any module
            ``(batch, time, d_model) → ((batch, time, ·), state)`` with ``output_size``. Not saved by name.
        settings: Further settings of :class:`LrcSSMConfig`.

    Raises:
        ValueError: A setting is unknown or out of its range.

    Example:
        >>> model = LrcSSMModel(6, 4, d_model=32, d_state=16, n_layers=2)
        >>> model(torch.randn(8, 100, 6)).shape
        torch.Size([8, 4])

    Source:
        arXiv 2505.21717, figure 1.
    """

    def __init__(
        self, in_channels: int, out_features: int, *, layers: list[nn.Module] | None = None, **settings: Any
    ) -> None:
        super().__init__()
        try:
            self.config = config = LrcSSMConfig(in_channels, out_features, **settings)
        except TypeError as error:
            raise ValueError(f"settings: {error}") from None
        H = config.d_model
        if layers is not None and len(layers) != config.n_layers:
            raise ValueError(f"layers: expected {config.n_layers} (n_layers), got {len(layers)}")
        self.encoder = mlp(in_channels, H, H, config.init)
        options: dict[str, Any] = {} if layers else {
            "solver": config.solver, "tol": config.tol, "max_iter": config.max_iter,
            "bidirectional": config.bidirectional, **config.cell_options(),
        }  # fmt: skip
        self.blocks = nn.ModuleList(
            LrcSSMBlock(
                H, config.d_state, cell=layers[i] if layers else config.cell, dropout=config.dropout,
                affine=config.affine, init=config.init, **options,
            )
            for i in range(config.n_layers)
        )  # fmt: skip
        self.decoder = mlp(H, H, out_features, config.init)
        if config.standardize:
            self.register_buffer("center", torch.zeros(in_channels))
            self.register_buffer("scale", torch.ones(in_channels))

    def forward(
        self,
        u: Float[Tensor, "batch time p"],
        *,
        lengths: Tensor | None = None,
        mask: Bool[Tensor, "batch time"] | None = None,
        dt: float | Tensor | None = None,
        state: list[Tensor] | None = None,
        return_state: bool = False,
        return_info: bool = False,
    ) -> Any:
        """Return logits or values: ``(batch, out)``, or ``(batch, time, out)`` with ``per_step``.

        Args:
            u: Inputs.
            lengths: Valid steps of each sequence.
            mask: In place of lengths, which steps are valid.
            dt: Step sizes, for irregular sampling.
            state: States of all blocks to go on from.
            return_state: Also return the states of all blocks.
            return_info: Also return the :class:`SolveInfo` of every block.

        Raises:
            ValueError: A shape, a dtype or a value does not fit.
        """
        given = u.dtype
        u = check_input(u, self.config.in_channels, next(self.parameters()).dtype)
        valid = make_mask(u, lengths, mask)
        if state is not None and len(state) != len(self.blocks):
            raise ValueError(f"state: expected {len(self.blocks)} states, one a block, got {len(state)}")
        x = self.encoder(self._scaled(u))
        states: list[Tensor] = []
        infos: list[SolveInfo] = []
        extra = {"return_info": True} if return_info else {}
        for i, block in enumerate(self.blocks):
            x, h = block(x, None if state is None else state[i], mask=valid, dt=dt, **extra)
            if return_info:
                h, info = h
                infos.append(info)
            states.append(h)
        out = self.decoder(x)
        out = out if self.config.per_step else pool(out, valid, self.config.pooling)
        out = out.to(given)
        more = ([states] if return_state else []) + ([infos] if return_info else [])
        return (out, *more) if more else out

    def step(self, u: Float[Tensor, "batch p"], state: list[Tensor]) -> tuple[Float[Tensor, "batch out"], list[Tensor]]:
        """Take one step of a stream: (output of this step, states). For models with ``per_step``.

        Raises:
            ValueError: The model pools over steps, or reads from both ends.
        """
        if not self.config.per_step or self.config.bidirectional:
            raise ValueError("step: expected a model with per_step=True in one direction")
        x, new = self.encoder(self._scaled(u)), []
        for block, h in zip(self.blocks, state, strict=True):
            x, h = block.step(x, h)  # type: ignore[operator]  # noqa: PLW2901
            new.append(h)
        return self.decoder(x), new

    def initial_state(self, batch: int) -> list[Tensor]:
        """Return the states before the first step, one a block."""
        return [block.rnn.initial_state(batch) for block in self.blocks]  # type: ignore[union-attr, operator]

    @torch.no_grad()
    def standardize(self, center: Float[Tensor, " p"], scale: Float[Tensor, " p"]) -> None:
        """Fix what each input channel is shifted and divided by.

        Raises:
            ValueError: The model was made without ``standardize=True``, or a scale is not above 0.
        """
        if not self.config.standardize:
            raise ValueError("standardize: the model was made without standardize=True")
        if not bool((scale > 0).all()):
            raise ValueError("scale: expected numbers above 0")
        self.center.copy_(center)  # type: ignore[operator]
        self.scale.copy_(scale)  # type: ignore[operator]

    def _scaled(self, u: Tensor) -> Tensor:
        return (u - self.center) / self.scale if self.config.standardize else u  # type: ignore[operator]

    def _save_pretrained(self, save_directory: Path) -> None:
        write_whole(Path(save_directory, CONFIG), self.config.to_json(), force=True)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        write_whole(Path(save_directory, WEIGHTS), save(tensors), force=True)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> LrcSSMModel:
        """Load a model from a folder, or by its name from a hub.

        Raises:
            FileNotFoundError: There is no such folder, or a file is missing in it.
            ValueError: The config is not one of ours, or the weights do not fit it.
        """
        name = str(pretrained_model_name_or_path)
        if not Path(name).is_dir() and (Path(name).is_absolute() or name.startswith(".") or name.count("/") > 1):
            raise FileNotFoundError(f"{name}: there is no such folder; expected a saved model, or a name on a hub")
        if Path(name).is_dir():
            LrcSSMConfig.from_json(
                _local(name, CONFIG, options).read_text()
            )  # before the hub's reader, which trusts it
        model: LrcSSMModel = super().from_pretrained(name, **options)
        return model

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> LrcSSMModel:
        files = {name: _local(model_id, name, options) for name in (CONFIG, WEIGHTS)}
        config = LrcSSMConfig.from_json(files[CONFIG].read_text())
        model = cls(**{name: getattr(config, name) for name in config.__dataclass_fields__})
        tensors = load_tensors(files[WEIGHTS], name="weights")
        kind = next((t.dtype for name, t in tensors.items() if name == "encoder.0.weight"), torch.float32)
        model = model.to(kind)
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"{WEIGHTS}: the weights do not fit the config: {error}") from None
        return model.eval()


def pool(x: Float[Tensor, "batch time out"], valid: Tensor | None, how: Pooling) -> Float[Tensor, "batch out"]:
    """Make one output of all valid steps."""
    if valid is None:
        return {"mean": lambda: x.mean(1), "last": lambda: x[:, -1], "max": lambda: x.amax(1)}[how]()
    m = valid.unsqueeze(-1)
    if how == "mean":
        return (x * m).sum(1) / m.sum(1)
    if how == "max":
        return x.masked_fill(~m, -torch.inf).amax(1)
    steps = torch.arange(x.shape[1], device=x.device)
    last = (steps * valid).argmax(1)
    return x[torch.arange(len(x), device=x.device), last]


def mlp(width: int, hidden: int, out: int, init: Initialisation) -> nn.Sequential:
    """Return a perceptron with one hidden layer."""
    made = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, out))
    if init == "reference":
        for layer in (made[0], made[2]):
            bound = math.sqrt(6 / layer.out_features)  # type: ignore[operator]
            nn.init.uniform_(layer.weight, -bound, bound)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return made


def _local(model_id: str, name: str, options: dict[str, Any]) -> Path:
    folder = Path(model_id)
    if folder.is_dir():
        if not (folder / name).exists():
            raise FileNotFoundError(f"{folder}: expected a saved model, {name} is missing")
        return folder / name
    from huggingface_hub import hf_hub_download

    wanted = ("revision", "cache_dir", "force_download", "token", "local_files_only")
    return Path(hf_hub_download(model_id, name, **{k: options[k] for k in wanted if k in options}))
