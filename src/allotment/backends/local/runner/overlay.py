"""What differs between overlay mounts of root's and of others: whose attributes have marks."""

import os


def opaque_mark() -> str:
    """Name the attribute of a folder that hides what layers below have in it."""
    return f"{'trusted' if os.geteuid() == 0 else 'user'}.overlay.opaque"


def options() -> str:
    """Return what a mount is told of that, after its other options."""
    return "" if os.geteuid() == 0 else ",userxattr"
