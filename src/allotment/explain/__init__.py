"""What the core decided, in words and figures for people. No decision reads it."""
