"""A process that takes no more code: what it has goes on to work, and nothing comes in."""

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src"
BEGIN = f"""
import sys
sys.path.insert(0, {str(SOURCES)!r})
from allotment.rights.sealing import take_no_more_code
import json, zlib
sys.path.insert(0, sys.argv[1])
take_no_more_code()
"""


def done(folder: Path, code: str) -> "subprocess.CompletedProcess[str]":
    (folder / "mine.py").write_text("print('RUNS')")
    words = [sys.executable, "-I", "-c", BEGIN + code, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_nothing_is_imported_any_more(tmp_path: Path) -> None:
    found = done(tmp_path, "import mine")
    assert (found.stdout, found.returncode) == ("", 1)
    for name in ("mine", "cp037"):
        code = f"try: 'x'.encode({name!r})\nexcept LookupError: print('none')"
        assert done(tmp_path, code).stdout == "none\n"


def test_what_is_there_goes_on(tmp_path: Path) -> None:
    code = "print(json.loads(zlib.decompress(zlib.compress(json.dumps('é').encode()))))"
    assert done(tmp_path, code).stdout == "é\n"


def test_an_error_ends_it_and_is_not_printed(tmp_path: Path) -> None:
    """To print it, sources would be read."""
    found = done(tmp_path, "raise RuntimeError")
    assert (found.stdout, found.stderr, found.returncode) == ("", "", 1)
    code = "class A:\n  def __del__(self): raise RuntimeError\nA(); print('on')"
    found = done(tmp_path, code)
    assert (found.stdout, found.stderr, found.returncode) == ("on\n", "", 0)
