"""Whether nodes see what the service keeps, as far as this machine can know. Pure.

A folder on a network file system is taken to be the nodes' too. What is mounted inside it from
a disk of this machine is not. Of two disks of this machine nothing is known: it may share both.
"""

from typing import Final

NETWORK: Final = frozenset({
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "glusterfs",
    "fuse.glusterfs", "cifs", "smb3", "wekafs", "panfs", "pvfs2", "afs", "9p",
})  # fmt: skip
OWN: Final = frozenset({
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs",
    "tmpfs", "ramfs", "overlay",
})  # fmt: skip


def why_unseen(path: str, root: str, mountinfo: str) -> str:
    """Return why nodes that see `root` do not see `path`; '' where they may. Both are plain."""
    on, kind = _mount_of(path, mountinfo)
    if kind not in OWN or _mount_of(root, mountinfo)[1] not in NETWORK:
        return ""
    return (
        f"No dataset can be mounted on the nodes: {path} is on a disk of the service's machine "
        f"({kind}, {on}), which they do not see."
    )


def _mount_of(path: str, mountinfo: str) -> tuple[str, str]:
    """Return where the file system of a path is mounted, and its kind. The last one counts."""
    found = "", ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        at = left.split()[4].encode().decode("unicode_escape")
        is_above = f"{path}/".startswith(f"{at.rstrip('/')}/")
        if is_above and len(at) >= len(found[0]):
            found = at, right.partition(" ")[0]
    return found
