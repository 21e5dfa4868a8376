"""Real data that evidence and tests share; the files themselves come from ``thrifty.bench.carried``."""
