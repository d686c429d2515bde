"""An environment that is turned to the Python of an image."""

from pathlib import Path

import pytest

from allotment.service.environments.for_image import turn


@pytest.fixture
def env(tmp_path: Path) -> Path:
    (tmp_path / "lib/python3.11/site-packages/x").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to("/usr/bin/python3.11")
    for name in ("python3", "python3.11"):
        (tmp_path / "bin" / name).symlink_to("python")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return tmp_path


@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_it_starts_the_images_python_and_has_modules_where_that_looks(
    env: Path, version: str
) -> None:
    turn(env, "3.11.2", version, f"/opt/bin/python{version}")
    links = {path.name: str(path.readlink()) for path in (env / "bin").iterdir()}
    assert links == {
        "python": f"/opt/bin/python{version}", "python3": "python", f"python{version}": "python"
    }  # fmt: skip
    assert [path.name for path in (env / "lib").iterdir()] == [f"python{version}"]
    assert "home = /opt/bin\n" in (env / "pyvenv.cfg").read_text()


def test_links_that_packages_left_are_not_written_through(env: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    for name in ("pyvenv.cfg", "bin/python"):
        (env / name).unlink()
        (env / name).symlink_to(precious)
    turn(env, "3.11.2", "3.11", "/usr/bin/python3.11")
    assert precious.read_text() == "as it was"
