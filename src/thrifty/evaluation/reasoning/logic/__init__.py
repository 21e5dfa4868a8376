"""Logic programs over quantities: what follows from them, how, and in how few steps."""
