"""Hardware and optimizers as data; see `devices.json` and `optimizers.json`."""
