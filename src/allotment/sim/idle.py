"""Whether policies can be told apart at all: only where jobs wait."""

from collections.abc import Sequence

from allotment.metrics.summary import Summary

HARDLY = 0.01
"""Up to this part of its time from submission to end a job hardly waits, on the mean."""


def nothing_waits(summaries: Sequence[Summary]) -> str:
    """Return words that runs cannot be compared: hardly any job waits; '' where some do."""
    done = [each for each in summaries if each.completed]
    if len(done) < len(summaries) or not done:
        return ""
    waits = [_part(each) for each in done]
    if max(waits) > HARDLY:
        return ""
    idle = 1 - max(each.utilization for each in done)
    return (
        f"There is nothing to compare: jobs hardly wait under any policy (at most "
        f"{max(waits):.2%} of their time, on average), as {idle:.0%} of the devices were "
        "idle. Policies differ under more load, or on fewer machines."
    )


def _part(summary: Summary) -> float:
    """Return the part of the mean completion time that is waiting."""
    if not summary.avg_jct_s:
        return 0.0
    return summary.avg_queue_delay_s / summary.avg_jct_s
