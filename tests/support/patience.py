"""How long tests wait for what has to come, on a machine that others share and may stall."""

PATIENCE_S = 60
"""Far longer than anything takes that works: who waits looks often, and waits no longer than
needed. Only what never comes costs this time."""
