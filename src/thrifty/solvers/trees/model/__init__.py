"""What a decision tree is here, how it is read and written, and how two of them are compared."""
