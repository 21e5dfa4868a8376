"""The commands of ``thrifty speculation``: measuring, asking a model, and the options that they share."""
