"""Of the nodes that could serve, which to try first."""
