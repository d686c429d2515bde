"""What a service asks the agent of a node whose disk it does not see."""

from collections.abc import Mapping

import msgspec

from allotment.model.ids import AttemptNo, JobId
from allotment.service.batch.files import File
from allotment.service.ports import Identity
from allotment.service.workspace import FileBelow, JobFolders, Left, Watched

PIECE = 1 << 20
"""So much of a file is sent at once, at most."""
LONGEST_LIST = 16 << 20
"""Bytes of all paths in one list."""


class MakeFolders(msgspec.Struct, frozen=True, tag="make_folders"):
    """Answered with nothing."""

    wanted: JobFolders


class WriteFiles(msgspec.Struct, frozen=True, tag="write_files"):
    """Answered with nothing."""

    job: JobId
    files: Mapping[str, File]


class LookAt(msgspec.Struct, frozen=True, tag="look_at"):
    """Answered with Changed files."""

    watched: tuple[Watched, ...]


class ListFiles(msgspec.Struct, frozen=True, tag="list_files"):
    """Answered with a Listing."""

    left: Left
    most: int


class Listing(msgspec.Struct, frozen=True):
    """Files that an attempt left on a node."""

    files: tuple[FileBelow, ...]
    is_all: bool
    is_there: bool = True
    """Whether the folder is, of those that the node made itself."""


class ReadFile(msgspec.Struct, frozen=True, tag="read_file"):
    """Answered with a Part."""

    left: Left
    path: str
    offset: int
    size: int


class Part(msgspec.Struct, frozen=True):
    """A piece of a file; of one that cannot be read, why."""

    data: bytes = b""
    size: int = 0
    """Of the whole file."""
    inode: int = 0
    """A file that is replaced meanwhile has another."""
    code: str = ""
    message: str = ""
    hint: str = ""


class DigestFiles(msgspec.Struct, frozen=True, tag="digest_files"):
    """Read files of an attempt. Answered with a Digested for each."""

    left: Left
    paths: tuple[str, ...]


class Digested(msgspec.Struct, frozen=True):
    """A file that was read to its end; of one that cannot be read, why."""

    digest: str = ""
    size: int = 0
    inode: int = 0
    is_program: bool = False
    """Whether its owner may run it."""
    code: str = ""
    message: str = ""


class ForgetFiles(msgspec.Struct, frozen=True, tag="forget_files"):
    """Remove all that some jobs left on the node. Answered with nothing."""

    jobs: tuple[JobId, ...]


class PutFile(msgspec.Struct, frozen=True, tag="put_file"):
    """Lay a piece of a file into a job's folder, as its user; dated when it is whole.

    Answered with nothing.
    """

    folder: str
    identity: Identity | None
    file: FileBelow
    offset: int
    data: bytes


class ClearCheckpoints(msgspec.Struct, frozen=True, tag="clear_checkpoints"):
    """Remove what a node has of a job's checkpoints. Answered with nothing."""

    job: JobId


class HasKept(msgspec.Struct, frozen=True, tag="has_kept"):
    """Ask for a folder of the service's that a node may keep. Answered with whether it does."""

    name: str
    """Its path below the service's folder, and below the node's."""


class PutKept(msgspec.Struct, frozen=True, tag="put_kept"):
    """Lay down a piece of such a folder, as it was packed. Answered with nothing."""

    name: str
    offset: int
    data: bytes


class UnpackKept(msgspec.Struct, frozen=True, tag="unpack_kept"):
    """Unpack it, if it has this digest. Answered with nothing."""

    name: str
    digest: str
    needed: tuple[str, ...]
    """What jobs need that have not ended: these stay."""
    limit: int
    """Bytes of all that the node may keep."""


class HasListed(msgspec.Struct, frozen=True, tag="has_listed"):
    """Ask whether a node has all files of a list, ready for tasks. Answered with that."""

    owner: str
    """Whose the files are: `code/UID`, or `data/ID` of a dataset."""
    digest: str
    """Of the list."""


class TakeFiles(msgspec.Struct, frozen=True, tag="take_files"):
    """Take a piece of files in, as `content/receiving.py` has them. Answered with nothing."""

    owner: str
    data: bytes
    limit: int
    """Bytes that the node may keep of such files."""
    is_first: bool
    """Whether nothing before belongs to it."""
    are_digests: bool = True
    """Whether the files' names are digests of what is in them."""


class LackFiles(msgspec.Struct, frozen=True, tag="lack_files"):
    """Ask which files a node lacks of a list that came; it makes room for them.

    Answered with their names, each as 32 bytes.
    """

    owner: str
    digest: str
    limit: int
    in_use: frozenset[str] = frozenset()
    """Which lists jobs use that run or start, as `OWNER/DIGEST`: these stay."""


class LayData(msgspec.Struct, frozen=True, tag="lay_data"):
    """Lay out a version of data whose files are all there. Answered with nothing."""

    owner: str
    digest: str


class LayCode(msgspec.Struct, frozen=True, tag="lay_code"):
    """Copy code to where an attempt works, for its user. Answered with nothing."""

    owner: str
    digest: str
    job: JobId
    attempt: AttemptNo
    identity: Identity | None = None


class ListHeld(msgspec.Struct, frozen=True, tag="list_held"):
    """Ask which environments and versions of data a node has. Answered with HeldRows, those
    first that were asked for last."""


class HeldRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of them: `environments/made/KEY`, or `OWNER/DIGEST`."""

    name: str
    bytes: int = 0


KeptOp = HasKept | PutKept | UnpackKept
ListedOp = HasListed | TakeFiles | LackFiles | LayData | LayCode
FileOp = (
    MakeFolders
    | WriteFiles
    | LookAt
    | ListFiles
    | ReadFile
    | DigestFiles
    | ForgetFiles
    | PutFile
    | ClearCheckpoints
    | KeptOp
    | ListedOp
    | ListHeld
)
