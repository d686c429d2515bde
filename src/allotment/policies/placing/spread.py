"""Worst fit: the emptiest node first, so that jobs disturb each other least.

Bad at: leaving whole nodes free: large gangs wait longer.
"""


class Spread:
    """Try nodes with the most free devices first."""

    def rank(self, free: int, need: int) -> int:  # noqa: ARG002 - the protocol's signature
        return -free
