"""Exact answers to hard combinatorial questions."""
