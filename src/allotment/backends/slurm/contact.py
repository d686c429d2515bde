"""Whether Slurm answers, by all that it is asked."""

from time import monotonic
from types import TracebackType

import structlog

from allotment.model.errors import BackendError

log = structlog.get_logger("allot.slurm")


class Contact:
    """The last answer, and what came instead of the next ones."""

    def __init__(self) -> None:
        self._answered = monotonic()
        self.trouble = ""
        """Why Slurm does not answer; '' where it does."""

    @property
    def silent_s(self) -> float:
        """For how long Slurm has not answered; 0 where it does."""
        return monotonic() - self._answered if self.trouble else 0.0

    async def __aenter__(self) -> None:
        """Ask: whether it is answered shows at the end."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, BackendError):
            if not self.trouble:
                log.warning("Slurm does not answer; its jobs go on", why=str(error))
            self.trouble = str(error)
        elif error is None:
            if self.trouble:
                log.info("Slurm answers again", after_s=round(self.silent_s))
            self.trouble, self._answered = "", monotonic()
