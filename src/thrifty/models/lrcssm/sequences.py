"""Sequences as users have them, in one form: padded float32 (n, time, channels) with lengths.

Read are NumPy archives (``X`` and ``y``), the text files of the UCR and UEA archives (``.ts``), and those archives by
name through aeon, which downloads them.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split


@dataclass(frozen=True)
class Sequences:
    """A set of sequences.

    Args:
        X: Padded with zeros at the end.
        lengths: Valid steps of each.
        y: Labels or values as they were given; ``None`` without.
    """

    X: Float[np.ndarray, "n time channels"]
    lengths: Int[np.ndarray, " n"]
    y: NDArray | None = None

    def __len__(self) -> int:
        return len(self.X)

    def rows(self, index: NDArray) -> Sequences:
        """Return some of the sequences."""
        return Sequences(self.X[index], self.lengths[index], None if self.y is None else self.y[index])

    @property
    def equal(self) -> bool:
        """Whether no sequence is padded."""
        return bool((self.lengths == self.X.shape[1]).all())


def from_arrays(X: Any, y: Any = None) -> Sequences:
    """Take what aeon and scikit-learn users hold: (n, channels, time), (n, time), or a list of (channels, time_i).

    Raises:
        ValueError: It has another shape, is empty, holds numbers that are not finite, or ``y`` has another length.
    """
    if isinstance(X, (list, tuple)) and len(X) and np.ndim(X[0]) == 2:
        pieces = [np.asarray(x, dtype=np.float32) for x in X]
        widths = sorted({piece.shape[0] for piece in pieces})
        if len(widths) > 1:
            raise ValueError(f"X: expected sequences of one number of channels, got {widths}")
        lengths = np.array([piece.shape[1] for piece in pieces])
        if not lengths.min():
            raise ValueError(f"X: expected at least one step in each sequence, got none in {int(lengths.argmin())}")
        padded = np.zeros((len(pieces), int(lengths.max()), widths[0]), np.float32)
        for row, piece in zip(padded, pieces, strict=True):
            row[: piece.shape[1]] = piece.T
    else:
        array = np.asarray(X)
        array = array if np.iscomplexobj(array) else array.astype(np.float32)  # `checked` refuses complex numbers
        if array.ndim == 2:
            array = array[:, None, :]
        if array.ndim != 3:
            raise ValueError(f"X: expected shape (n, channels, time), got {array.shape}")
        padded = np.ascontiguousarray(array.transpose(0, 2, 1))
        lengths = np.full(len(padded), padded.shape[1])
    return checked(padded, lengths, None if y is None else np.asarray(y))


def checked(X: NDArray, lengths: NDArray, y: NDArray | None) -> Sequences:
    """Return sequences that are known to be sound.

    Raises:
        ValueError: They are not; the message says where.
    """
    if np.iscomplexobj(X):
        raise ValueError(f"X: expected real numbers, got {X.dtype}")
    if 0 in X.shape:
        raise ValueError(f"X: expected sequences, steps and channels, got (n, time, channels) = {X.shape}")
    finite = np.isfinite(X)
    if not finite.all():
        n, t, c = (int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"X: expected finite numbers, got {X[n, t, c]} in sequence {n}, channel {c}, step {t}")
    if y is not None and len(y) != len(X):
        raise ValueError(f"y: expected {len(X)} values, one a sequence, got {len(y)}")
    if y is not None and np.issubdtype(y.dtype, np.floating) and not np.isfinite(y).all():
        raise ValueError(f"y: expected finite values, got {y[~np.isfinite(y)][0]}")
    return Sequences(X, lengths, y)


def coded_labels(y: Any) -> tuple[NDArray, NDArray]:
    """Return the classes of some labels, and each label as its number.

    Raises:
        ValueError: There is only one class, or JSON cannot hold the labels.
    """
    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y: expected at least two classes, got only {classes.tolist()}")
    if classes.dtype.kind not in "biufU" and not all(isinstance(name, str | int | float) for name in classes):
        raise ValueError(f"y: expected labels that are text or numbers, got {classes.dtype}")
    return classes, codes.reshape(-1)


def hold_out(
    data: Sequences, fraction: float, seed: int, stratify: NDArray | None
) -> tuple[Sequences, Sequences | None]:
    """Split a share off, by class where every class has two members.

    Raises:
        ValueError: The share is not in [0, 1), or leaves nothing to train on.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"validation_fraction: expected a share in [0, 1), got {fraction!r}")
    if fraction == 0:
        return data, None
    count = max(1, round(fraction * len(data)))
    if stratify is not None:
        sizes = np.bincount(stratify)
        if sizes.min() < 2 or count < len(sizes) or len(data) - count < len(sizes):
            stratify = None
    if count >= len(data):
        raise ValueError(f"validation_fraction: {fraction} of {len(data)} sequences leaves none to train on")
    train, held = train_test_split(np.arange(len(data)), test_size=count, random_state=seed % 2**32, stratify=stratify)
    return data.rows(train), data.rows(held)


def read(source: str, split: str | None = None) -> Sequences:
    """Read sequences.

    Args:
        source: A ``.npz`` file with ``X`` (n, time, channels) and ``y``, and ``lengths`` if padded; a ``.ts`` file; or
            ``uea:NAME`` (also ``ucr:NAME``), which aeon downloads.
        split: ``"train"`` or ``"test"`` of a set by name; ``None``: both.

    Raises:
        ValueError: The file is none of these, or not sound.
        OSError: It cannot be read, or the archive cannot be reached.
        ImportError: A set by name, without aeon.
    """
    kind, _, name = source.partition(":")
    if kind in {"uea", "ucr"} and name:
        return _by_name(name, split)
    path = Path(source)
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".ts":
        return _read_ts(path)
    raise ValueError(f"data: expected a .npz or .ts file, or uea:NAME, got {source!r}")


def _by_name(name: str, split: str | None) -> Sequences:
    try:
        aeon: Any = import_module("aeon.datasets")
    except ModuleNotFoundError as error:
        raise ImportError(f"{name!r} is loaded by aeon, which is not installed: pip install aeon") from error
    try:
        X, y = aeon.load_classification(name, split=split)
    except Exception as error:  # aeon wraps network failures in errors of its own
        raise OSError(
            f"data: aeon could not load {name!r} ({type(error).__name__}: {error}); it needs the network the first "
            "time, or pass a .ts file"
        ) from error
    return from_arrays(X, y)


def _read_npz(path: Path) -> Sequences:
    try:
        found = np.load(path, allow_pickle=False)
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"data: {path} is no sound .npz archive: {error}") from None
    if not isinstance(found, np.lib.npyio.NpzFile):
        raise ValueError(f"data: {path} holds one array; expected an .npz archive of X and y")
    with found:
        names = list(found)
        if "X" not in names:
            raise ValueError(f"data: {path} holds {names}; expected X (n, time, channels) and y")
        X = found["X"]
        if X.ndim != 3 or not np.issubdtype(X.dtype, np.number):
            raise ValueError(f"data: {path}: X: expected numbers (n, time, channels), got {X.dtype} of {X.shape}")
        lengths = found["lengths"] if "lengths" in names else np.full(len(X), X.shape[1])
        if (
            lengths.shape != (len(X),)
            or lengths.dtype.kind not in "iu"
            or lengths.min(initial=1) < 1
            or lengths.max(initial=1) > X.shape[1]
        ):
            raise ValueError(f"data: {path}: lengths: expected {len(X)} whole numbers in 1 … {X.shape[1]}")
        return checked(X if np.iscomplexobj(X) else X.astype(np.float32), lengths, found["y"] if "y" in names else None)


def _read_ts(path: Path) -> Sequences:
    """Read the archives' text format: comma-separated steps, channels parted by colons, the label last."""
    labelled, rows, labels, begun = True, [], [], False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        lower = text.lower()
        if not text or text.startswith("#"):
            continue
        if not begun:
            if lower.startswith("@timestamps") and lower.endswith("true"):
                raise ValueError(f"data: {path}: time stamps are not supported")
            if lower.startswith(("@classlabel", "@targetlabel")):
                labelled = "true" in lower.split()[1:2]
            begun = lower.startswith("@data")
            continue
        channels = text.split(":")
        if labelled:
            labels.append(channels.pop().strip())
        try:
            values = [[float(cell) if cell.strip() != "?" else np.nan for cell in c.split(",")] for c in channels]
            if len({len(channel) for channel in values}) > 1:
                raise ValueError(f"channels of different lengths: {[len(channel) for channel in values]}")
            rows.append(np.array(values, dtype=np.float32))
        except ValueError as error:
            raise ValueError(f"data: {path}, line {number}: {error}") from None
    if not rows:
        raise ValueError(f"data: {path}: expected a line '@data' and sequences after it, got none")
    return from_arrays(rows, np.array(labels) if labelled else None)
