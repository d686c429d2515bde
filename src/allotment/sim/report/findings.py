"""What came out, in sentences computed from the figures."""

from collections.abc import Sequence

from allotment.sim.idle import nothing_waits
from allotment.sim.report.view import View
from allotment.sim.report.words import counted, number, percent, seconds

CHANGES = (
    (0, "removes {0}"),
    (0.005, "all but removes {0}"),
    (0.48, "cuts {0} by {2}"),
    (0.52, "halves {0}"),
    (0.99, "cuts {0} by {2}"),
    (1.01, "leaves {0} as it is"),
    (1.95, "raises {0} by {2}"),
    (2.05, "doubles {0}"),
    (3, "raises {0} by {2}"),
)
"""Up to which ratio of new to old what is said: of the thing, the ratio, the difference."""


def overall(views: Sequence[View]) -> list[str]:
    """Compare each run with the first, or sum up the only one."""
    if not views:
        return ["No runs were given."]
    first = views[0]
    if len(views) == 1:
        return [_alone(first)]
    if said := nothing_waits([view.summary for view in views]):
        return [said]
    median = _medians_tell(views)
    return [_against(view, first, median=median) for view in views[1:]]


def _medians_tell(views: Sequence[View]) -> bool:
    """Whether medians of waiting can be compared: a median of nothing says nothing."""
    medians = [view.summary.p50_queue_delay_s for view in views if view.summary.completed]
    return bool(medians) and min(medians) > 0 and _differ(max(medians), min(medians))


def _alone(view: View) -> str:
    s = view.summary
    if not s.jobs:
        return "The trace has no jobs."
    if not s.completed:
        return f"None of {counted(s.jobs, 'job')} completed under {view.name}."
    use = f"{percent(s.utilization)} of the devices were in use"
    done = counted(s.completed, "completed job")
    if not view.delay[-1]:
        return f"Under {view.name}, none of {done} waited; {use}."
    half, most = _wait(s.p50_queue_delay_s), _wait(s.p90_queue_delay_s)
    return f"Under {view.name}, half of {done} {half} and nine in ten {most}; {use}."


def _wait(value: float) -> str:
    return f"waited at most {seconds(value)}" if value else "did not wait"


def _against(view: View, base: View, *, median: bool) -> str:
    new, old = view.summary, base.summary
    if not new.completed or not old.completed:
        none = base if not old.completed else view
        return (
            f"{view.name} cannot be compared with {base.name}: "
            f"no job completed under {none.name}."
        )
    thing, now, before = "mean wait", new.avg_queue_delay_s, old.avg_queue_delay_s
    if median:
        thing, now, before = "median wait", new.p50_queue_delay_s, old.p50_queue_delay_s
    if not now and not before:
        said = f"{view.name}, like {base.name}, makes no job wait"
    elif before and not _differ(now, before):
        said = f"{view.name} leaves the {thing} of {base.name} as it is ({seconds(before)})"
    else:
        verb = change(f"the {thing} of {base.name}", now, before)
        said = f"{view.name} {verb} ({seconds(before)} to {seconds(now)})"
    more = new.preemptions - old.preemptions
    if more > 0:
        cost = f"costs {counted(more, 'preemption')}"
    elif more < 0:
        cost = f"saves {counted(-more, 'preemption')}"
    else:
        cost = "costs no preemption" if not new.preemptions else "costs as many preemptions"
    jct = change("the mean completion time", new.avg_jct_s, old.avg_jct_s)
    return f"{said}, {jct} and {cost}."


def _differ(new: float, old: float) -> bool:
    """Whether more than one part in a hundred lies between them."""
    return not 0.99 < new / old <= 1.01


def change(thing: str, new: float, old: float) -> str:
    """Return what becomes of a thing that was `old` and is `new`: "halves the wait"."""
    if not old:
        return f"leaves {thing} at 0" if not new else f"makes {thing} more than 0"
    ratio = new / old
    said = next(
        (words for limit, words in CHANGES if ratio <= limit), "makes {0} {1} times as long"
    )
    return said.format(thing, number(round(ratio, 1)), percent(abs(1 - ratio)))
