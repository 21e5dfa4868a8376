"""Data: configs of public models."""
