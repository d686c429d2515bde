"""Who of those that share has least, and so comes next."""
