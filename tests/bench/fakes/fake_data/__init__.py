"""A method that needs carried data."""
