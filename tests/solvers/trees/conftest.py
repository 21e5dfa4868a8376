"""What the tests of this folder need before they are collected."""

import hashlib
import sys
import tempfile
from pathlib import Path

import numba

HERE = Path(__file__).parent

# pytest's importlib mode does not put this folder on the path, and `tree_instances` lies in it.
sys.path.append(str(HERE))

# numba compiles a kernel anew when the file of that kernel changes, not when the file of a kernel that it calls
# does. Tests of edited code must not run yesterday's machine code, so each state of the kernels has its own cache.
SOURCES = sorted((HERE.parents[2] / "src" / "thrifty" / "solvers" / "trees").rglob("*.py"))
KERNELS = [source for source in (path.read_bytes() for path in SOURCES) if b"@njit" in source]
STATE = hashlib.sha256(b"".join(KERNELS)).hexdigest()[:16]
numba.config.CACHE_DIR = str(Path(tempfile.gettempdir()) / f"thrifty-trees-{STATE}")
