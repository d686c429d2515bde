"""Allotment schedules and runs deep-learning jobs of many teams on one shared cluster.

Nothing is imported here: the launcher of the local backend is forked thousands of
times, and the command line must start in a blink.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from allotment.client import Client as Client


def __getattr__(name: str) -> object:
    """Return `from allotment import Client` without paying for it at every import."""
    if name == "Client":
        from allotment.client import Client  # noqa: PLC0415 - imported only when asked for

        return Client
    raise AttributeError(f"module 'allotment' has no attribute {name!r}")
