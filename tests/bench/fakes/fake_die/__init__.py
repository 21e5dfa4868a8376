"""A method whose process dies."""
