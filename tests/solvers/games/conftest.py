"""What the tests of this folder need before they are collected."""

import hashlib
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numba

# numba compiles a kernel anew when the file of that kernel changes, not when the file of a kernel that it calls does
# (the compiled rounds call those of paths). Tests of edited code must not run yesterday's machine code, so each state
# of the kernels has its own cache, and so has code that checks its indices.
(HOME,) = find_spec("thrifty.solvers").submodule_search_locations
KERNELS = [source for path in sorted(Path(HOME, "games").rglob("*.py")) if b"@njit" in (source := path.read_bytes())]
STATE = hashlib.sha256(b"".join(KERNELS)).hexdigest()[:16]
numba.config.CACHE_DIR = str(Path(tempfile.gettempdir()) / f"thrifty-games-{STATE}-{bool(numba.config.BOUNDSCHECK)}")
