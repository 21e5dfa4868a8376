"""A function in a process of its own: rivals whose packages must not be imported here, memory seen from outside.

Arguments and result travel as JSON; the function is named by where it is imported from.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from typing import Any


def call(target: str, *arguments: Any, timeout: float | None = None) -> Any:
    """Return what a function gives in a fresh process.

    Args:
        target: ``"package.module:function"``, importable there.
        arguments: What it is called with: anything that JSON can carry, as must be what it returns.
        timeout: Seconds after which the process is ended.

    Raises:
        ImportError: It needs a package that is not installed.
        RuntimeError: It failed; the message ends with the last line that it wrote to standard error.
        subprocess.TimeoutExpired: It took too long.
    """
    command = [sys.executable, "-m", "thrifty.bench.isolated", target]
    done = subprocess.run(
        command, input=json.dumps(arguments), capture_output=True, text=True, check=False, timeout=timeout
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        if last.startswith("ModuleNotFoundError: "):
            raise ImportError(f"{target} needs what is not installed: {last.split()[-1]}")
        raise RuntimeError(f"target: {target} failed in a fresh process: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def _main(target: str) -> None:
    """Call the target with what standard input holds, and print its result as the last line."""
    module, _, name = target.partition(":")
    result = getattr(import_module(module), name)(*json.load(sys.stdin))
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    _main(sys.argv[1])
