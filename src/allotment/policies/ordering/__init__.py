"""Which waiting job comes first."""
