"""Which versions of Kubernetes can be used."""

Version = tuple[int, int]
OLDEST, NEWEST = (1, 20), (1, 37)
"""Tried, both of them, and what is between."""


def why_too_old(version: Version) -> str:
    """Return why a cluster of a version cannot be used; '' where it can be."""
    if version >= OLDEST:
        return ""
    needed = f"{OLDEST[0]}.{OLDEST[1]}"
    return f"Kubernetes {version[0]}.{version[1]} is too old: {needed} or newer is needed"
