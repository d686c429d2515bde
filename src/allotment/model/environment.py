"""The Python packages that a job asks for."""

import msgspec


class Environment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A version of Python and requirements; `key` names what they were resolved to."""

    python: str = ""
    requirements: tuple[str, ...] = ()
    key: str = ""
    lock: str = ""
    """The digest of the lock that they are, whose hashes are not kept here."""
    carried: bool = False
    """Whether its Python comes along: it is for images into which the service does not look."""
    file: str = ""
    """The file that has the requirements, until its user's client has read it."""
