"""Simulations that break, in a line: most often a policy of somebody's own is the cause."""

from pathlib import Path

from allotment.model.errors import AllotmentError


class Crashed(AllotmentError):
    """A simulation came to a bad end of its own: under which policy, where and why."""


def crashed(policy: str, error: Exception) -> Crashed:
    """Return the failure of a simulation: the policy, the error and the line it came from."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code if last else crashed.__code__
    where = f"{Path(code.co_filename).name}:{last.tb_lineno if last else 0}"
    what = f"{type(error).__name__} at {where}: {error}".removesuffix(": ")
    return Crashed(f"{policy}: {what}.")
