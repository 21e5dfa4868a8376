import pytest

from thrifty.bench import registry


@pytest.fixture(autouse=True)
def _command(monkeypatch):
    """The command, as it will be once the method is in the registry: that waits for its measured numbers."""
    method = registry.Method(
        name="coreset", title="", room="data", package="thrifty.data.coreset", line="", saves="", host="",
        maturity="research", citation="", exports=(), has_cli=True,
    )  # fmt: skip
    monkeypatch.setattr(registry, "METHODS", (*registry.METHODS, method))
