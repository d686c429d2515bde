"""Sweeps, decided: which trials there are, and which of them are stopped. Values in and out."""
