"""How long jobs run."""
