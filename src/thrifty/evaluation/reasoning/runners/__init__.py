"""Asking models: prompts, endpoints, local models, and runs that can be resumed."""
