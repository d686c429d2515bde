"""The decision: order, feasibility, shares, preemption, plan, commit. No clock, no IO."""
