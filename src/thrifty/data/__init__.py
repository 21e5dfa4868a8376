"""Fewer, smaller or better training examples."""
