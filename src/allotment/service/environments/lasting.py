"""What keeps an environment from being built, and would the next time as well."""

from typing import ClassVar

from allotment.model.diagnosis import Owner, RetryClass
from allotment.model.errors import Code
from allotment.model.unusable import Matter, Unusable


class Failed(Exception):
    """uv did not succeed; the text is its own, shortened."""


class Lasting(Failed):
    """To try again would end the same way."""

    matter: ClassVar[Matter]

    def unusable(self) -> Unusable:
        """Return it in words for a job or a request."""
        return Unusable(self.matter, f"The environment cannot be built: {self}.")


class Spoilt(Lasting):
    """What was fetched is not what it has to be."""

    matter = Matter(
        "environment_broken", Code.CONFLICT, Owner.PLATFORM, RetryClass.NEVER,
        "Ask the administrator to repair the mirror or the index; then submit it again.",
    )  # fmt: skip


class TooLarge(Lasting):
    """It is more than one environment may be."""

    matter = Matter(
        "environment_too_large", Code.TOO_LARGE, Owner.USER, RetryClass.NEVER,
        "Ask for fewer packages, or the administrator for more: `limits.environment_store`.",
    )  # fmt: skip
