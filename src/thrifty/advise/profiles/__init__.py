"""Optimizers as data; see `optimizers.json`."""
