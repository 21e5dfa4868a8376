"""A method that never ends, in a process of its own besides."""
