"""Words with rules: names, paths, commands, environment, priorities, signals.

Every reader raises Amiss. Names end up in folder names, environment variables and URLs,
hence their narrow alphabet.
"""

import re
from collections.abc import Sequence
from typing import cast

from allotment.model.spec import WITHHELD, Arch, Priority
from allotment.wire.amiss import Amiss, check_placeholder, not_a
from allotment.wire.amounts import read_whole
from allotment.wire.text import CONTROL, shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
NAME_RULE = (
    "use letters, digits, `.`, `_` and `-`, at most 128, starting with a letter or digit"
)
VARIABLE = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]{0,255}|BASH_FUNC_[A-Za-z0-9_.:+-]{1,200}(?:%%|\(\))"
)
"""bash passes a function on, such as `module`, as a variable of such a name."""
RESERVED = "ALLOT_"
REDACTED = WITHHELD
LONGEST_LINE = 1024
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

PRIORITIES = {"low": 10, "normal": Priority.NORMAL, "high": 500}
SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM")
ARCHES = {
    "any": Arch.ANY,
    "x86_64": Arch.X86_64, "x86-64": Arch.X86_64, "amd64": Arch.X86_64,
    "arm64": Arch.ARM64, "aarch64": Arch.ARM64,
}  # fmt: skip


def read_name(value: object) -> str:
    """Read the name of a job, role, tenant, queue or port."""
    return _named(value, NAME, NAME_RULE)


def read_node_name(value: object) -> str:
    """Read the name of a node, which may be as long as that of a machine."""
    return _named(value, NODE_NAME, NAME_RULE.replace("128", "253"))


def _named(value: object, name: re.Pattern[str], rule: str) -> str:
    if not isinstance(value, str):
        hint = f'in quotes it is one: "{value}"' if type(value) is int and value < 10**9 else ""
        raise not_a("a name", value, hint or rule)
    check_placeholder(value)
    if not name.fullmatch(value):
        raise Amiss(f"{shown(value)} cannot be a name", rule)
    return value


def read_name_or_none(value: object) -> str:
    """Read a name; an empty text leaves it out."""
    return "" if value == "" else read_name(value)


def read_line(value: object) -> str:
    """Read one line of text: an image, a device type, a label."""
    if not isinstance(value, str):
        raise not_a("a text", value, "put it in quotes")
    check_placeholder(value)
    if CONTROL.search(value) or "\n" in value or "\r" in value or "\t" in value:
        raise Amiss(f"{shown(value)} has a line break or control character", "take it out")
    if len(value) > LONGEST_LINE:
        raise Amiss(
            f"has {len(value)} characters, and {LONGEST_LINE} are accepted", "shorten it"
        )
    if value != value.strip():
        raise Amiss(f"{shown(value)} starts or ends with a blank", "take the blank out")
    return value


def read_word(value: object) -> str:
    """Read one line of text that says something."""
    if value == "":
        raise Amiss("must not be empty", "write it, or take the key out")
    return read_line(value)


def read_user(value: object) -> str:
    """Read the name of a user or group, as the operating system has it."""
    text = read_word(value)
    if any(letter in text for letter in ":/,"):
        raise Amiss(f"{shown(text)} cannot be a user or group", "name one, as `id` shows it")
    return text


def read_path(value: object) -> str:
    """Read a file path. Whether the file exists is not looked at."""
    text = read_line(value)
    if ADDRESS.match(text):
        raise Amiss(
            f"{shown(text)} is an address, and only paths of mounted file systems work",
            "mount it, and give the path, such as /data/images",
        )
    if ".." in text.split("/"):
        raise Amiss(f"{shown(text)} has a step up (`..`) in it", "write the path without it")
    return text


def read_command(value: object) -> str | tuple[str, ...]:
    """Read a shell line, or a list of a program and its arguments."""
    if isinstance(value, str):
        check_placeholder(value)
        if not value.strip():
            raise Amiss("must not be empty", "write what to run: python train.py")
        return _without_nul(value)
    if not isinstance(value, (list, tuple)):
        raise not_a("a shell line or a list of arguments", value, "python train.py")
    items = cast("Sequence[object]", value)
    words = tuple(_argument(word, index) for index, word in enumerate(items))
    if not words or not words[0].strip():
        raise Amiss("must not be empty", "write what to run: [python, train.py]")
    return words


def _argument(value: object, index: int) -> str:
    try:
        return _text_as_written(value)
    except Amiss as amiss:
        amiss.at = (index,)
        raise


def read_env_value(value: object) -> str:
    """Read the value of a variable; numbers and booleans as they were written."""
    return _text_as_written(value)


def read_secret(value: object) -> str:
    """Read a secret. Its text is never part of a message."""
    if value == REDACTED:
        raise Amiss(
            f"`{REDACTED}` is what is shown in place of a secret",
            "give the secret itself, or {from_env: NAME}",
        )
    if not isinstance(value, (str, int)):
        raise Amiss("must be a text or {from_env: NAME}")
    return _text_as_written(value)


def _text_as_written(value: object) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and abs(value) < 1 << 63:
        return str(value)
    if not isinstance(value, str):
        raise not_a("a text", value, 'put it in quotes; no text at all is ""')
    return _without_nul(value)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise Amiss("has a NUL character, which no program can be given", "take it out")
    return text


def read_variable(value: object) -> str:
    """Read the name of an environment variable that is the user's to set."""
    if not isinstance(value, str) or not VARIABLE.fullmatch(value):
        raise Amiss(
            f"{shown(value)} cannot be a variable",
            "use letters, digits and `_`, no digit first",
        )
    if value.upper().startswith(RESERVED):
        raise Amiss(f"names with {RESERVED} are set by Allotment itself", "choose another name")
    return value


def same_variable(labels: Sequence[str]) -> tuple[int, int] | None:
    """Return two labels whose ports would get the same ALLOT_PORT_… variable, if any."""
    seen: dict[str, int] = {}
    for index, label in enumerate(labels):
        word = "".join(letter if letter.isalnum() else "_" for letter in label).upper()
        if word in seen:
            return seen[word], index
        seen[word] = index
    return None


def taken_label(label: str, other: str) -> tuple[str, str]:
    """Return a message that two labels cannot be used together."""
    if label == other:
        return (
            f"the label {label} is taken by another port",
            "choose another, or raise its count",
        )
    return (
        f"the label {label} is too much like {other}",
        "make them differ in letters or digits",
    )


def read_priority(value: object) -> int:
    """Read low, normal, high or a number; higher goes first."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    what = f"low, normal, high or a number up to {Priority.HIGHEST}"
    return read_whole(value, Priority.LOWEST, Priority.HIGHEST, what)


def read_signal(value: object) -> str:
    """Read a signal's name, with or without SIG, that a program can answer."""
    if not isinstance(value, str):
        raise not_a("the name of a signal", value, f"write one of {', '.join(SIGNALS)}")
    name = value.strip().upper().removeprefix("SIG")
    if name in ("KILL", "STOP"):
        raise Amiss(f"no program can catch {name}", "use TERM, or USR1 as a warning")
    if name not in SIGNALS:
        raise not_a("the name of a signal", value, f"write one of {', '.join(SIGNALS)}")
    return name


def read_arch(value: object) -> Arch:
    """Read a host architecture under any of its usual names."""
    arch = ARCHES.get(value.lower()) if isinstance(value, str) else None
    if arch is None:
        raise not_a("x86_64, arm64 or any", value)
    return arch
