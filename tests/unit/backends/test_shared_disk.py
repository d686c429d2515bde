"""What nodes do not see is known from where things are mounted here, if at all."""

import pytest

from allotment.backends.pilot.shared_disk import why_unseen

ROOT, DATA = "/mnt/all of us/state", "/mnt/all of us/state/data"


def mounts(*lines: str) -> str:
    return "".join(
        f"{n} 1 0:{n} / {line.partition(' ')[0]} rw,relatime shared:1 - "
        f"{line.partition(' ')[2]} x:/y rw\n"
        for n, line in enumerate(("/ ext4", *lines))
    )


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((r"/mnt/all\040of\040us nfs4", rf"{DATA.replace(' ', chr(92) + '040')} xfs"), "xfs"),
        ((r"/mnt/all\040of\040us nfs4",), ""),
        ((), ""),
        ((r"/mnt/all\040of\040us ext4", rf"{DATA.replace(' ', chr(92) + '040')} xfs"), ""),
        ((r"/mnt/all\040of\040us nfs4", rf"{DATA.replace(' ', chr(92) + '040')} lustre"), ""),
        ((r"/mnt/all\040of\040us nfs4", r"/mnt/all\040of\040us/state/dat xfs"), ""),
    ],
)
def test_a_disk_of_this_machine_inside_a_shared_folder_is_no_nodes(
    lines: tuple[str, ...], kind: str
) -> None:
    told = why_unseen(DATA, ROOT, mounts(*lines))
    assert (f"({kind}, {DATA})" in told) if kind else not told
