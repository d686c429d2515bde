"""Whether the API server answers, by all that it is asked."""

from time import monotonic

import structlog

log = structlog.get_logger("allot.kubernetes")


class Contact:
    """The last answer, and what came instead of the next ones."""

    def __init__(self) -> None:
        self._answered = monotonic()
        self.trouble = ""
        """Why it does not answer; '' where it does."""

    @property
    def silent_s(self) -> float:
        """For how long it has not answered; 0 where it does."""
        return monotonic() - self._answered if self.trouble else 0.0

    def answered(self) -> None:
        """Note an answer, a refusal too."""
        if self.trouble:
            log.info("Kubernetes answers again", after_s=round(self.silent_s))
        self.trouble, self._answered = "", monotonic()

    def missed(self, why: str) -> None:
        """Note that no answer came."""
        if not self.trouble:
            log.warning("Kubernetes does not answer; its pods go on", why=why)
        self.trouble = why
