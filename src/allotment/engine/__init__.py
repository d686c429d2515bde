"""The memory: events in, state; commands and reports in, events. Pure, and without a clock."""
