"""What buildah and registries say, and what it means. The lines are real ones."""

import errno
import os
from pathlib import Path

import pytest

from allotment.building import trouble

BUILDS = [
    ('Error: building at STEP "RUN false": exit status 1',
     "step_failed", "RUN false: ended with exit code 1"),
    ('Error: building at STEP "RUNN ": Build error: Unknown instruction: "RUNN" '
     '&imagebuilder.Step{Env:[]string{"A=b"}}',
     "not_built", 'RUNN : Build error: Unknown instruction: "RUNN"'),
    ('Error: building at STEP "COPY no /": checking on sources under "/c": copier: stat: '
     '"/no": no such file or directory',
     "not_built", 'COPY no /: checking on sources under "/c": copier: stat: "/no": no such '
     "file or directory"),
    ("Error: no FROM statement found", "not_built", "no FROM statement found"),
    ("Error: creating build container: initializing source docker://r:5/b:7: reading manifest "
     "7 in r:5/b: manifest unknown: manifest unknown",
     "base_gone", "docker://r:5/b:7: reading manifest 7 in r:5/b: manifest unknown: manifest "
     "unknown"),
    ("Error: creating build container: initializing source docker://r:5/b:7: reading manifest "
     "7 in r:5/b: unauthorized: authentication required",
     "base_denied", "docker://r:5/b:7: reading manifest 7 in r:5/b: unauthorized: "
     "authentication required"),
    ("Error: creating build container: initializing source docker://r:5/b:7: pinging container "
     'registry r:5: Get "http://r:5/v2/": dial tcp 127.0.0.1:5: connect: connection refused',
     "registry_away", 'docker://r:5/b:7: pinging container registry r:5: Get "http://r:5/v2/": '
     "dial tcp 127.0.0.1:5: connect: connection refused"),
    ('Error: building at STEP "COPY . /": storing "/x": write /x: no space left on device',
     "no_room", 'building at STEP "COPY . /": storing "/x": write /x: no space left on device'),
    ("Error: 'overlay' is not supported over nfs at \"/h/layers/overlay\"",
     "no_folder", "'overlay' is not supported over nfs at \"/h/layers/overlay\""),
    ("", "not_built", "buildah was killed"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "code", "text"), BUILDS)
def test_a_build_that_failed(line: str, code: str, text: str) -> None:
    found = trouble.of_build(("STEP 1/2: FROM a", "Error: not this one", "  ", line, ""))
    if not line:
        found = trouble.of_build(("", ""))
    assert (found.code, str(found)) == (code, text)
    assert found.line() == f"allotment.building: [{code}] {text}"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("checking whether a blob sha256:1b exists in r:5/a: unauthorized: authentication "
         "required", "push_denied"),
        ("requested access to the resource is denied", "push_denied"),
        ("uploading layer to https://r/v2/: received unexpected HTTP status: 503 Service "
         "Unavailable", "registry_away"),
        ("writing manifest: schema unsupported", "push_failed"),
        ("initiating layer upload to /v2/a/blobs/uploads/ in r:5: name unknown: no such "
         "project", "push_failed"),
    ],
)  # fmt: skip
def test_a_push_that_failed(line: str, code: str) -> None:
    said = f'Error: pushing image "r:5/a:1" to "docker://r:5/a:1": {line}'
    assert trouble.of_push((said,), "r:5/a:1").code == code


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "no_room"), (errno.EDQUOT, "no_room"), (errno.EACCES, "no_folder"),
        (errno.ENOENT, "no_folder"),
    ],
)  # fmt: skip
def test_a_folder_that_is_full_is_none_that_cannot_be_used(number: int, code: str) -> None:
    error = OSError(number, os.strerror(number))
    assert trouble.of_folder(Path("/h"), error).code == code


def test_a_line_has_a_bound() -> None:
    assert len(trouble.Trouble("not_built", "x" * 10_000).line()) == 400


def test_a_machine_that_lets_no_user_make_namespaces() -> None:
    line = "unshare: unshare failed: Operation not permitted"
    assert trouble.of_build((line, "")).code == "no_builder"
    line = "error running subprocess: remounting /dev in mount namespace read-only: no"
    failed = 'Error: building at STEP "RUN true": exit status 1'
    found = trouble.of_build(("STEP 2/2: RUN true", line, failed))
    assert found.code == "no_builder"
    assert "service of root" in str(found)


def test_what_a_step_prints_of_namespaces_is_its_own_matter() -> None:
    lines = ("STEP 2/2: RUN x", "unshare: write uid_map failed", "user namespace is not there")
    failed = 'Error: building at STEP "RUN x": exit status 1'
    assert trouble.of_build((*lines, failed)).code == "step_failed"
