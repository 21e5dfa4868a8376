"""Cheaper architectures."""
