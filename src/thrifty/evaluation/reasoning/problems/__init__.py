"""Word problems: their words, their making, and reading them back."""
