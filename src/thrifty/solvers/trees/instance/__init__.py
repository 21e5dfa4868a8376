"""A tree, a table on ranks, and what may be changed; how hard that is, and instances that are hard."""
