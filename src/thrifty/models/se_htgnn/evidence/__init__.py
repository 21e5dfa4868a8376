"""What `thrifty bench se-htgnn` measures."""
