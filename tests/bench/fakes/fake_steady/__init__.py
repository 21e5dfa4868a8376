"""A method whose claims cover every status."""
