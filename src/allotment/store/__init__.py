"""The event log and what is derived from it: in memory, in SQLite."""
