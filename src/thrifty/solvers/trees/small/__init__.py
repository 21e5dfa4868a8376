"""Solvers for small instances, in the paper's own words: trying everything, and deciding for few errors."""
