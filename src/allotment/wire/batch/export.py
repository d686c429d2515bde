"""Which variables of its submitter a job gets, as `--export` says."""

import re
from collections.abc import Mapping

import msgspec

from allotment.wire.amiss import not_a
from allotment.wire.words import RESERVED, VARIABLE

OF_A_SESSION = frozenset({
    "_", "SHLVL", "PWD", "OLDPWD", "TMPDIR", "TERM", "DISPLAY", "XAUTHORITY", "WINDOWID",
    "COLUMNS", "LINES", "PS1", "PROMPT_COMMAND", "SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT",
    "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_SESSION_ID",
})  # fmt: skip
"""What belongs to the terminal or the machine of the submitter and is wrong elsewhere."""

OF_A_PLACE = frozenset({
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "MASTER_ADDR", "MASTER_PORT", "RANK",
    "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "NNODES", "TF_CONFIG",
    "HOSTNAME", "NCCL_IB_HCA", "UCX_NET_DEVICES",
})  # fmt: skip
"""What the place of a job decides."""

OF_BATCH_SYSTEMS = (RESERVED, "SLURM_", "SLURMD_", "SBATCH_", "LSB_", "LSF_", "LS_", "PMI_",
                    "PMIX_", "OMPI_COMM_", "PAI_", "FC_")  # fmt: skip

SECRET = re.compile(r"(?i)TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_KEY")
"""Names of variables whose values nobody is shown."""


class Exported(msgspec.Struct, frozen=True):
    """What a job gets of its submitter's environment; some of it is shown to nobody."""

    env: dict[str, str] = {}
    secrets: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    """What was named, and is not set there."""


def read_export(value: str) -> tuple[bool, tuple[str, ...], dict[str, str]]:
    """Read whether all variables are passed on, which by name, and which with a value."""
    names: list[str] = []
    values: dict[str, str] = {}
    all_of_them = False
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if part in ("ALL", "NONE", "NIL"):
            all_of_them = part == "ALL"
        elif not VARIABLE.fullmatch(name) or name.startswith(RESERVED):
            raise not_a("ALL, NONE or names of variables", part, "write ALL,NAME,OTHER=value")
        elif equals:
            values[name] = text
        else:
            names.append(name)
    return all_of_them, tuple(names), values


def exported(value: str, environ: Mapping[str, str]) -> Exported:
    """Return what a job gets of an environment. Raises Amiss."""
    all_of_them, names, values = read_export(value)
    found = {
        name: text
        for name, text in environ.items()
        if (name in names or (all_of_them and _can_go(name))) and _is_text(text)
    } | values
    secrets = {name: text for name, text in found.items() if SECRET.search(name) and text}
    env = {name: text for name, text in found.items() if name not in secrets}
    return Exported(env, secrets, tuple(name for name in names if name not in environ))


def _can_go(name: str) -> bool:
    return (
        VARIABLE.fullmatch(name) is not None
        and name not in OF_A_SESSION
        and name not in OF_A_PLACE
        and not name.startswith(OF_BATCH_SYSTEMS)
    )


def _is_text(text: str) -> bool:
    return not any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text)
