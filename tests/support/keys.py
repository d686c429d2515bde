"""Keys that the kernel keeps for a session: each process in the session can read them."""

import subprocess
import sys

from tests.support.patience import PATIENCE_S

_NUMBERS = '{"x86_64": 250, "ppc64le": 271, "s390x": 280}.get(os.uname().machine, 219)'
_CALLS = f"""\
import ctypes, os, sys
call, number = ctypes.CDLL(None, use_errno=True).syscall, {_NUMBERS}
def add(name, text):
    return call(number - 2, b"user", name, text, len(text), -3)
def find(name):
    found, text = call(number, 10, -3, b"user", name, 0), ctypes.create_string_buffer(99)
    call(number, 11, found, text, 99)
    return text.value if found > 0 else b"nothing"
"""
WITH_KEY = f"""{_CALLS}
if call(number, 1, None) < 0 or add(b"service", b"s3cret") < 0:
    sys.exit(3)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A program that runs another with a key `service` in a session of its own."""

LOOK = f"""{_CALLS}
print(find(b"service"), find(b"other"), add(b"other", b"0ther") > 0, find(b"other"))
"""
"""A program that says what it finds of the service's and another's, and puts one there."""
SAYS = "b'nothing' b'nothing' True b'0ther'"
"""What it says where neither is to be found."""


def with_key(*words: str) -> list[str]:
    """Return words that run others with a key in their session."""
    return [sys.executable, "-c", WITH_KEY, *words]


def has_keys() -> bool:
    """Whether the kernel keeps keys for us: in containers it often does not."""
    return not subprocess.run(with_key("/bin/true"), timeout=PATIENCE_S, check=False).returncode
