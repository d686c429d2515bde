"""Makes an environment one for the Python of an image, which the machine does not have.

uv fills a virtual environment of one of the machine's Pythons with the wheels that fit the
image's. What still tells the two apart is where modules lie and which program is started.
"""

import os
from pathlib import Path
from typing import Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def turn(env: Path, made_with: str, python: str, program: str) -> None:
    """Turn an environment to a Python of this version, which is at a path in the image.

    With the rights of whoever filled it: packages put files wherever they want in it.
    """
    before, after = f"python{_minor(made_with)}", f"python{python}"
    if before != after:
        (env / "lib" / before).rename(env / "lib" / after)
    for name in ("python", "python3", before, after):
        (env / "bin" / name).unlink(missing_ok=True)
    (env / "bin/python").symlink_to(program)
    for name in ("python3", after):
        (env / "bin" / name).symlink_to("python")
    lines = (
        f"home = {program.rpartition('/')[0]}",
        "implementation = CPython",
        f"version_info = {python}",
        "include-system-site-packages = false",
        "relocatable = true",
    )
    settings = env / "pyvenv.cfg"
    settings.unlink()
    fd = os.open(settings, _NEW, 0o644)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
