"""Docker's credential helpers: programs of users, which the service runs as them."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allotment.backends.local.images import helper
from allotment.backends.local.images.helper import LoginHelpers
from allotment.backends.local.images.trouble import ImageTrouble, Kind
from allotment.backends.local.runner.cgroup import RUNNER
from allotment.backends.local.runner.cgroup_v1 import SHARED_DEVICES
from allotment.backends.local.runner.hierarchy import prepare
from allotment.service.ports import Identity, ImageWish
from tests.integration.local.harness import SYSTEM_PYTHON
from tests.support.cluster import ALLOT, until
from tests.support.credential_helpers import SAYS, configure, install
from tests.support.exchange import owned
from tests.support.registry import (
    MARKS,
    PASSWORD,
    USERS,
    Registry,
    WithUsers,
    a_registry,
    busybox,
    login,
)
from tests.support.token_server import IDENTITY, believed_by

pytestmark = MARKS
UID = USERS["ann"]
DEVICES = {
    *("core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin"),
    *("stdout", "tty", "urandom", "zero"),
}


@pytest.fixture
def private(private: Registry) -> Registry:
    private.push("model", [busybox()])
    return private


# ── a registry that wants a password ────────────────────────────────────────────────────


def test_a_helper_logs_its_user_in_and_nobody_else(
    service: WithUsers, private: Registry
) -> None:
    image = f"{private.host}/model:1"
    home = service.home("ann")
    configure(home, credHelpers={private.host: "vault"})
    install(home, "vault", f'read host; echo "$1 $host $(id -u)" >> ~/asked; {SAYS}')
    assert service.run(image, "cat /etc/system", "ann").output == "busybox\n"
    assert set((home / "asked").read_text().splitlines()) == {f"get {private.host} {UID}"}
    assert "may not read" in service.refused(image, "ben")
    for word in (PASSWORD, login("ann")):
        grep = ["grep", "-rlF", word, str(service.state)]
        assert not subprocess.run(grep, capture_output=True, check=False).stdout


def test_a_job_is_refused_with_what_is_wrong_with_the_helper(
    service: WithUsers, private: Registry
) -> None:
    image, home = f"{private.host}/model:1", service.home("ann")
    configure(home, credHelpers={private.host: "vault"})
    said = service.refused(image, "ann")
    assert "docker-credential-vault" in said
    assert "~/.local/bin or ~/bin" in said
    assert f"allot image login {private.host} --user NAME" in said
    # What is there for all registries counts only where somebody has to log in.
    configure(home, credsStore="vault")
    assert "docker-credential-vault" in service.refused(image, "ann")
    install(home, "vault", SAYS)
    assert service.run(image, "true", "ann").state == "succeeded"
    with a_registry(service.state.parent / "open") as free:
        free.push("free", [busybox()])
        install(home, "vault", "echo >> ~/tried; exit 7")
        assert service.run(f"{free.host}/free:1", "true", "ann").state == "succeeded"
        assert len((home / "tried").read_text().splitlines()) == 1  # In a minute.


def test_a_helper_that_hangs_keeps_no_other_user_waiting(
    service: WithUsers, private: Registry
) -> None:
    image, home = f"{private.host}/model:1", service.home("ann")
    configure(home, credHelpers={private.host: "vault"})
    wait = "echo > ~/asked; while ! test -e ~/go; do sleep 0.1; done; exit 3"
    install(home, "vault", wait)
    with ThreadPoolExecutor(1) as pool:
        words = [*ALLOT, "run", "--image", image, "--", "true"]
        asking = pool.submit(service.ran, words, user="ann")
        until((home / "asked").exists, "the helper to be asked")
        assert "may not read" in service.refused(image, "ben")
        assert not asking.done()
        (home / "go").touch()
        assert "failed with exit code 3" in asking.result().stderr


def test_a_new_password_counts_at_once(service: WithUsers, private: Registry) -> None:
    image, home = f"{private.host}/model:1", service.home("ann")
    configure(home, credsStore="vault", auths={private.host: {}})
    install(home, "vault", SAYS.replace(PASSWORD, "old"))
    assert "the password you have for it is refused" in service.refused(image, "ann")
    install(home, "vault", SAYS)
    assert service.run(image, "true", "ann").state == "succeeded"


def test_an_identity_token_is_changed_for_a_token_of_the_registry(
    service: WithUsers, reachable: Path
) -> None:
    home = service.home("ann")
    with a_registry(reachable / "open") as made:
        made.push("model", [busybox()])
        image = f"{made.host}/model:1"
        with believed_by(made) as tokens:
            assert "you have no login" in service.refused(image, "ann")
            configure(home, credHelpers={made.host: "cloud"})
            install(home, "cloud", f"""echo '{{"Username":"<token>","Secret":"{IDENTITY}"}}'""")
            assert service.run(image, "true", "ann").state == "succeeded"
            assert tokens.grants[-1]["scope"] == "repository:model:pull"
            kept = {made.host: {"auth": login("0", ""), "identitytoken": "old"}}
            configure(home, auths=kept)
            assert "the password you have for it is refused" in service.refused(image, "ann")
            kept[made.host]["identitytoken"] = IDENTITY
            configure(home, auths=kept)
            assert service.run(image, "true", "ann").state == "succeeded"


def test_a_registry_that_takes_passwords_only_gets_no_identity_token(
    service: WithUsers, private: Registry
) -> None:
    configure(service.home("ann"), auths={private.host: {"identitytoken": IDENTITY}})
    assert "takes passwords only" in service.refused(f"{private.host}/model:1", "ann")


# ── what a helper says, and how it ends ─────────────────────────────────────────────────


@pytest.fixture
def ann(reachable: Path) -> Iterator[ImageWish]:
    """A user with a home, in which a helper can be."""
    home = owned(reachable / "ann", UID, 0o700)
    (reachable / "state").mkdir()
    yield ImageWish("h.org/a", "ann", str(home), identity=Identity(UID, UID, (UID,)))
    # What a launcher does at its end.
    for base in set(prepare(str(reachable / "state")).bases.values()):
        for name in (RUNNER, SHARED_DEVICES, ""):
            with contextlib.suppress(OSError):
                (Path(base) / name).rmdir()


def asked(ann: ImageWish, state: Path, script: str = "", name: str = "x") -> str:
    if script:
        install(Path(ann.home), "x", script)
    return LoginHelpers(str(state / "state")).basic_of(name, ann, "h.org")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("yes 2>&1 | head -2 >&2; exit 3", "failed with exit code 3: y"),
        ("", "is not on the service's machine"),
        ("echo no key ring >&2; exit 3", "failed with exit code 3: no key ring"),
        ('echo \'{"Secret": "s3cret"\'; exit 1', "failed with exit code 1"),
        ("kill -SEGV $$", "was killed by signal 11"),
        ("echo hello", "does not print JSON"),
        ('echo \'{"Username": 1, "Secret": "s3cret"}\'', "does not print JSON"),
        ("echo " + "[" * 5000, "does not print JSON"),
        ("exec yes", "prints without end"),
        ("exec yes >&2", "did not end in 2 s"),
    ],
)
def test_what_is_wrong_with_a_helper_is_said(
    ann: ImageWish,
    reachable: Path,
    script: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(helper, "HELPER_S", 2)
    with pytest.raises(ImageTrouble, match=words) as told:
        asked(ann, reachable, script)
    assert told.value.kind is Kind.DENIED
    assert "s3cret" not in str(told.value) + told.value.advice
    assert "allot image login h.org" in told.value.advice


def test_a_helper_that_may_not_be_run_is_said(ann: ImageWish, reachable: Path) -> None:
    install(Path(ann.home), "x", "true")
    (Path(ann.home) / "bin/docker-credential-x").chmod(0o644)
    with pytest.raises(ImageTrouble, match="cannot be started: permission denied"):
        asked(ann, reachable)


@pytest.mark.parametrize("name", ["", "../x", "a b", "x;id", "é", "x" * 65, "a/b"])
def test_a_name_that_is_none_runs_nothing(ann: ImageWish, reachable: Path, name: str) -> None:
    with pytest.raises(ImageTrouble, match="has a name that no program may have"):
        asked(ann, reachable, "true", name)


def test_a_helper_that_keeps_nothing_is_no_error(ann: ImageWish, reachable: Path) -> None:
    nothing = "echo credentials not found in native keychain; exit 1"
    assert asked(ann, reachable, nothing) == ""


# ── a hostile one ───────────────────────────────────────────────────────────────────────


def processes() -> list[str]:
    """List the processes of the user."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and entry.stat().st_uid == UID:
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def test_a_helper_gets_nothing_that_a_job_lacks(
    ann: ImageWish, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLOT_SECRET_OF_SERVICE", "yes")
    state = reachable / "state"
    (state / "of-others").mkdir()
    secret = os.memfd_create("secret")
    os.set_inheritable(secret, True)
    look = (
        "exec > ~/seen 2>&1; env | cut -d= -f1 | sort | tr '\\n' ' '; echo; "
        "ls /proc/self/fd | tr '\\n' ' '; echo; id -u; id -g; id -G; "
        "grep -E '^(NoNewPrivs|CapEff|CapBnd):' /proc/self/status; "
        f"cat /proc/{os.getpid()}/environ; ls -d /proc/[0-9]* | wc -l; "
        "cat /proc/1/environ; ls /proc/1/fd; (: < /dev/tty); "
        f"echo state: $(ls -A {state}); echo dev: $(ls /dev); kill -KILL 1; pwd"
    )
    with pytest.raises(ImageTrouble):
        asked(ann, reachable, look)
    os.close(secret)
    seen = (Path(ann.home) / "seen").read_text()
    lines = seen.splitlines()
    assert lines[0].split() == ["HOME", "LANG", "LOGNAME", "PATH", "PWD", "USER"]
    # Of `ls` itself: what it lists is open.
    assert lines[1].split() == ["0", "1", "2", "3"]
    assert lines[2:5] == [str(UID)] * 3
    assert "NoNewPrivs:\t1" in seen
    assert "CapEff:\t0000000000000000" in seen
    assert "ALLOT_SECRET" not in seen
    assert f"/proc/{os.getpid()}/environ" in seen
    assert "No such file" in seen
    assert "/proc/1/environ: Permission denied" in seen
    assert "/dev/tty" in seen
    assert "state:" in lines
    dev = next(line for line in lines if line.startswith("dev:"))
    assert set(dev.split()[1:]) <= DEVICES
    assert lines[-1] == "/"


@pytest.mark.parametrize("ends", [True, False])
def test_nothing_that_a_helper_started_stays(
    ann: ImageWish, reachable: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """It leaves its session and its parent, and does not hear TERM."""
    monkeypatch.setattr(helper, "HELPER_S", 2)
    stays = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; echo > ~/stays; sleep 900' &)"
    end = "while ! test -e ~/stays; do sleep 0.1; done; "
    end += SAYS if ends else "sleep 900"
    if ends:
        assert asked(ann, reachable, f"{stays}\n{end}") == login("ann")
    else:
        with pytest.raises(ImageTrouble, match="did not end in 2 s"):
            asked(ann, reachable, f"{stays}\n{end}")
    assert (Path(ann.home) / "stays").exists()
    assert processes() == []


def test_what_a_helper_has_in_shared_memory_goes_with_it(
    ann: ImageWish, reachable: Path
) -> None:
    make = "import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600))"
    assert asked(ann, reachable, f"{SYSTEM_PYTHON} -c '{make}' >> ~/made; {SAYS}")
    assert int((Path(ann.home) / "made").read_text()) >= 0
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    assert UID not in [int(row.split()[7]) for row in rows]


def test_a_helper_that_forks_without_end_has_few_processes(
    ann: ImageWish, reachable: Path
) -> None:
    count = "n=0; while [ $n -lt 1000 ]; do sleep 900 & n=$((n + 1)); echo $n > ~/count; done"
    with pytest.raises(ImageTrouble, match=r"exit code 2.*fork"):
        asked(ann, reachable, count)
    assert int((Path(ann.home) / "count").read_text()) < 128
    assert processes() == []


def test_its_word_counts_for_a_while(ann: ImageWish, reachable: Path) -> None:
    helpers = LoginHelpers(str(reachable / "state"))
    install(Path(ann.home), "x", f"echo >> ~/asked; {SAYS}")
    for _ in range(3):
        assert helpers.basic_of("x", ann, "h.org") == login("ann")
    assert len((Path(ann.home) / "asked").read_text().splitlines()) == 1
    helpers.forget(ann, "h.org")
    assert helpers.basic_of("x", ann, "h.org") == login("ann")
    assert len((Path(ann.home) / "asked").read_text().splitlines()) == 2
