"""Which gangs are preempted first when a guarantee is reclaimed."""
