"""Thrifty."""
