"""Two and more changes, by branch and bound over sweeps."""
