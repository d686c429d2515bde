"""Allotment schedules and runs deep-learning jobs of many teams on one shared cluster.

Nothing is imported here: the launcher of the local backend is forked thousands of
times, and the command line must start in a blink.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from allotment.client import Client as Client
    from allotment.job import on_pause as on_pause
    from allotment.job import on_resume as on_resume
    from allotment.job import on_save as on_save
    from allotment.job import progress as progress


def __getattr__(name: str) -> object:
    """Return `Client` and what jobs use without paying for them at every import."""
    if name == "Client":
        from allotment.client import Client  # noqa: PLC0415 - imported only when asked for

        return Client
    if name in ("progress", "on_pause", "on_resume", "on_save"):
        from allotment import job  # noqa: PLC0415 - as above

        # `progress` is asked for at each step: it is found at once.
        return globals().setdefault(name, getattr(job, name))
    raise AttributeError(f"module 'allotment' has no attribute {name!r}")
