"""Makes changes of owner and of user succeed that would not, without doing anything.

In a user namespace that has one user there is nobody else to give a file to or to become.
Package managers try all the same, and give up. So the kernel is told to say yes and do nothing,
for this process and all that come of it. It takes rights away and gives none.
"""

import ctypes
from typing import Final

CALLS: Final = (
    "chown", "chown32", "lchown", "lchown32", "fchown", "fchown32", "fchownat",
    "setgroups", "setgroups32", "setuid", "setuid32", "setgid", "setgid32", "setfsuid",
    "setfsuid32", "setfsgid", "setfsgid32", "setreuid", "setreuid32", "setregid", "setregid32",
    "setresuid", "setresuid32", "setresgid", "setresgid32",
)  # fmt: skip
_LIBRARY: Final = "libseccomp.so.2"
"""buildah needs it, too."""
_ALLOW: Final = 0x7FFF0000
_SAY_YES: Final = 0x00050000
"""SCMP_ACT_ERRNO with the error 0, which is none."""

_OTHER_MACHINES: Final = 2
"""SCMP_FLTATR_ACT_BADARCH: programs for 32 bits would be killed otherwise, unasked."""


def pretend() -> None:
    """Begin. Raises OSError where the library is not there, or the kernel refuses."""
    library = ctypes.CDLL(_LIBRARY, use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = (ctypes.c_uint32,)
    library.seccomp_rule_add.argtypes = (
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint,
    )  # fmt: skip
    library.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    library.seccomp_load.argtypes = library.seccomp_release.argtypes = (ctypes.c_void_p,)
    rules = library.seccomp_init(_ALLOW)
    if not rules:
        raise OSError(0, "libseccomp does not work")
    try:
        _check(library.seccomp_attr_set(rules, _OTHER_MACHINES, _ALLOW))
        for name in CALLS:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:  # Others are of other machines.
                _check(library.seccomp_rule_add(rules, _SAY_YES, number, 0))
        _check(library.seccomp_load(rules))
    finally:
        library.seccomp_release(rules)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, "the filter of system calls is not taken")
