"""A method whose experiment fails half-way."""
