"""What the command line needs besides the method: columns, files, tables of text."""
