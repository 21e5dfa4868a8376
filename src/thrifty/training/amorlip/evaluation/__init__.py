"""Evaluation of CLIP models: zero-shot classification, retrieval, task lists and their averages."""
