"""Whether an engine answers, by all that it is asked."""

from time import monotonic

import structlog

from allotment.model.errors import BackendError


class Contact:
    """The last answer of an engine, and what came instead of the next ones.

    `async with` it to ask what only answers, or raises BackendError.
    """

    def __init__(self, engine: str, works: str) -> None:
        """`works` names what goes on while the engine does not answer, such as `pods`."""
        self._engine, self._works = engine, works
        self._log = structlog.get_logger(f"allot.{engine.lower()}")
        self._answered = monotonic()
        self._missed = self._away_s = 0.0
        self.trouble = ""
        """Why the engine does not answer; '' where it does."""

    @property
    def silent_s(self) -> float:
        """Return for how long it has not answered; 0 where it does."""
        return monotonic() - self._answered if self.trouble else 0.0

    @property
    def away_s(self) -> float:
        """Return how long it has been away in all, since we began: from an answer that did not
        come to the next that did."""
        return self._away_s + (monotonic() - self._missed if self.trouble else 0.0)

    def answered(self) -> None:
        """Note an answer."""
        if self.trouble:
            self._log.info(f"{self._engine} answers again", after_s=round(self.silent_s))
        self._away_s = self.away_s
        self.trouble, self._answered = "", monotonic()

    def missed(self, why: str) -> None:
        """Note that no answer came."""
        if not self.trouble:
            words = f"{self._engine} does not answer; its {self._works} continue"
            self._log.warning(words, why=why)
            self._missed = monotonic()
        self.trouble = why

    async def __aenter__(self) -> None:
        """Ask: whether it is answered shows at the end."""

    async def __aexit__(self, _kind: object, error: object, _trace: object) -> None:
        if isinstance(error, BackendError):
            self.missed(str(error))
        elif error is None:
            self.answered()
