"""What a method's card says: how it is switched on, and what was measured against it."""

from __future__ import annotations

import ast
import re
from importlib import resources

from thrifty.bench.registry import Method

#: Statuses of a claim that a user should know of before relying on the method.
_BAD = ("falls short", "cheaper but worse")


def switch_on(method: Method, code: str = "") -> str:
    """Return the line that switches a method on, with its import.

    Args:
        method: The method.
        code: What its predictor says of this workload; empty: the first call of the card to an exported name.

    Example:
        >>> from thrifty.bench import registry
        >>> switch_on(registry.get("streambp"), "enable_streambp(model)")
        'from thrifty import enable_streambp; enable_streambp(model)'
    """
    code = code or _example(method)
    names = [name for name in method.exports if re.search(rf"\b{name}\(", code)]
    return f"from thrifty import {', '.join(names)}; {code}" if names else code


def _example(method: Method) -> str:
    text = _card(method)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in method.exports:
                return " ".join(ast.unparse(node).split())
    return f"import {method.package}"


def risk(method: Method) -> tuple[str, ...]:
    """Return the claims of the card that fell short, and the first case in which it says not to use the method."""
    text = _card(method)
    rows = re.findall(r"^\|(.+)\|$", text, re.MULTILINE)
    bad = [
        ": ".join(cell.strip().replace("**", "") for cell in row.split("|") if cell.strip())
        for row in rows
        if any(status in row for status in _BAD)
    ]
    section = re.search(r"^#+ When not to use it\n+(.*?)(?=^#)", text, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    warnings = re.findall(r"^- (.+?)(?=^- |\Z)", section.group(1), re.MULTILINE | re.DOTALL) if section else []
    return (*bad[:3], *("not for: " + " ".join(warning.replace("**", "").split()) for warning in warnings[:1]))


def _card(method: Method) -> str:
    return resources.files(method.package).joinpath("README.md").read_text(encoding="utf-8")
