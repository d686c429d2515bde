"""Whether a running gang is better off elsewhere."""
