"""Cheaper predictions."""
