"""The command of a job that builds an image, or pushes one. It prints what it does."""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from allotment.building import shelf, trouble
from allotment.building.apt import with_apt
from allotment.building.buildah import Buildah
from allotment.building.dockerfile import read
from allotment.building.pretending import pretend
from allotment.building.trouble import MARK, Trouble
from allotment.model.image_names import BadReference, parse
from allotment.model.quantity import show_bytes

_LOGINS: Final = (".docker/config.json", ".config/containers/auth.json")
"""Where the passwords for registries are. buildah takes one file: the first that is there."""
_PROGRAMS: Final = ("buildah", "unshare")


def main(words: Sequence[str] | None = None) -> int:
    """Build, or push; return an exit code."""
    asked = _parser().parse_args(words)
    try:
        _work(asked)
    except Trouble as error:
        _tell(error.line())
        return 1
    return 0


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="allotment.building")
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build")
    build.add_argument("--tag", dest="name", required=True)
    build.add_argument("--file", required=True, type=Path)
    build.add_argument("--build-arg", action="append", default=[])
    build.add_argument("--secret", action="append", default=[])
    build.add_argument("--target", default="")
    build.add_argument("--no-cache", action="store_true")
    build.add_argument("--no-push", action="store_true")
    build.add_argument("folder")
    push = verbs.add_parser("push")
    push.add_argument("name")
    for each in (build, push):
        each.add_argument("--disk", type=int, required=True)
    return parser


def _work(asked: argparse.Namespace) -> None:
    if missing := [each for each in _PROGRAMS if shutil.which(each) is None]:
        raise Trouble(trouble.NO_BUILDER, f"{missing[0]} is not installed on this machine")
    text = _text(asked.file) if asked.verb == "build" else ""
    given = dict(each.split("=", 1) for each in asked.build_arg) if text else {}
    recipe = read(text, given)
    try:
        pretend()
    except OSError as error:
        raise Trouble(trouble.NO_BUILDER, str(error)) from error
    folder = shelf.folder_for(os.environ)
    try:
        with shelf.held(folder) as lock, tempfile.TemporaryDirectory(prefix="b-") as scratch:
            near = _near((asked.name, *recipe.bases))
            buildah = Buildah(folder / "layers", Path(scratch), near, asked.disk)
            if lock.is_alone:
                _clear(folder / "layers", buildah, asked.disk)
                lock.share()
            _carry_out(asked, text, recipe.steps, buildah, Path(scratch))
    except OSError as error:
        raise trouble.of_folder(folder, error) from error


def _carry_out(
    asked: argparse.Namespace, text: str, steps: int, buildah: Buildah, scratch: Path
) -> None:
    if asked.verb == "build":
        file = scratch / asked.file.name
        file.write_text(with_apt(text))
        _build(asked, file, steps, buildah)
    elif buildah.ask("inspect", "--type", "image", "--format", "{{.FromImageID}}", asked.name):
        raise Trouble("not_here", f"{asked.name} is not among the images that you have built")
    if asked.verb == "push" or not asked.no_push:
        _push(asked.name, buildah, scratch)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble(trouble.NOT_BUILT, f"{file} cannot be read: {error}") from error


def _near(names: Iterable[str]) -> set[str]:
    """Return the registries of images that are on this machine."""
    found: set[str] = set()
    for name in names:
        with contextlib.suppress(BadReference):  # buildah tells of it.
            reference = parse(name)
            found |= {reference.registry} if reference.is_near else set()
    return found


def _clear(layers: Path, buildah: Buildah, most: int) -> None:
    """Clear away what a build that was killed left, and layers where there is little room."""
    working = layers / "overlay-containers/containers.json"
    if working.exists() and working.read_bytes() not in (b"", b"[]", b"null"):
        _own_all(working)
        buildah.ask("rm", "--all")
    if shelf.measure(layers, most // 2) > most // 2:
        _tell(
            f"{MARK}: the layers that are kept take more than {show_bytes(most // 2)}: removed"
        )
        buildah.ask("rmi", "--all", "--force")


def _own_all(working: Path) -> None:
    """Have buildah know containers as its own that it had only begun, or half removed.

    It goes by a file that it writes last, and passes over others.
    """
    with contextlib.suppress(ValueError):
        for each in json.loads(working.read_bytes()):
            mark = working.parent / each["id"] / "userdata/buildah.json"
            if not mark.exists():
                mark.parent.mkdir(parents=True, exist_ok=True)
                about = {"type": "buildah 0.0.1", "container-id": each["id"]}
                mark.write_text(json.dumps(about))


def _build(asked: argparse.Namespace, file: Path, steps: int, buildah: Buildah) -> None:
    words = ["build", "--isolation", "chroot", "--cap-drop", "CAP_SYS_CHROOT", *_login()]
    words += ["--no-cache"] if asked.no_cache else ["--layers"]
    words += [part for each in asked.build_arg for part in ("--build-arg", each)]
    words += [part for each in asked.secret for part in ("--secret", each)]
    words += ["--target", asked.target] if asked.target else []
    words += ["--file", str(file), "--tag", asked.name, asked.folder]
    began = time.monotonic()
    done = buildah.run(*words)
    if done.code:
        raise trouble.of_build(done.lines)
    _tell(
        f"{MARK}: {asked.name} is built: {steps} steps, {done.reused} of them as before, "
        f"in {time.monotonic() - began:.1f} s"
    )


def _push(name: str, buildah: Buildah, scratch: Path) -> None:
    digest = scratch / "digest"
    began = time.monotonic()
    done = buildah.run("push", *_login(), "--digestfile", str(digest), name, f"docker://{name}")
    if done.code:
        raise trouble.of_push(done.lines, name)
    _tell(f"{MARK}: pushed in {time.monotonic() - began:.1f} s: {name}@{digest.read_text()}")


def _login() -> list[str]:
    """Name the file of this user's passwords. None is read here."""
    home = Path(os.environ.get("HOME") or "/")
    found = [path for name in _LOGINS if (path := home / name).is_file()]
    return ["--authfile", str(found[0])] if found else []


if __name__ == "__main__":
    sys.exit(main())
