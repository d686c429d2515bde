"""Best fit: the fullest node with room, so that whole nodes stay free for large gangs.

Bad at: jobs that disturb each other on one node, and nodes that run hot.
"""


class Pack:
    """Try nodes with the fewest free devices first."""

    def rank(self, free: int, need: int) -> int:  # noqa: ARG002 - the protocol's signature
        return free
