"""Cheaper gradient steps."""
