"""Folds over the event log, shared by the service and the simulator. docs/metrics.md.

How to use them:

    usage = Usage()                      # Usage(capacity_milli) when no ConfigApplied comes
    jobs = Jobs(usage)                   # Jobs(usage, begin) to fill in ids and run times
    causes = WaitCauses(usage, jobs)     # optional
    folds = Folds(usage, jobs, causes)
    folds.feed(records)                  # as often as there are new ones, in their order
    folds.pass_to(end)                   # only when the log ends later than its last event
    summary = summarise(
        jobs.rows, usage.totals(), usage.capacity.total_milli, causes=causes.by_tenant()
    )

`jobs.rows` are `JobOutcome`s in order of submission, filled in as events come; unfinished
ones have `end_ms` -1. `usage.samples()` is the cluster over time, at most 2,000 samples.
Tenants are told apart when summing up, by the rows: that costs nothing an event.
"""
