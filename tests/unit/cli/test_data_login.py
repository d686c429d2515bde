"""`allot data login` changes its user's file of keys, and nothing else in it.

Options that name a key, or a store, where none is asked are refused.
"""

import errno
import stat
from pathlib import Path

import pytest

from allotment.client import Refused
from allotment.client.data_login import keep
from allotment.service.data.objects.keys import key_of
from allotment.service.launch import Account
from tests.support.invoke import allot


def test_a_key_is_kept_for_its_user_alone(tmp_path: Path) -> None:
    path = keep(tmp_path, "default", "A", "B/+=")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = key_of(Account("ann", str(tmp_path)), "default")
    assert (found.id, found.secret) == ("A", "B/+=")


def test_others_and_remarks_stay(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    before = "# mine\n[lab]\naws_access_key_id = L\naws_secret_access_key = M"
    path = tmp_path / ".aws/credentials"
    path.write_text(f"[default]\naws_access_key_id = old\naws_session_token = t\n{before}")
    keep(tmp_path, "default", "A", "B")
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("# mine\n[lab]\n")
    assert "aws_session_token" not in text
    assert "aws_secret_access_key = M\n" in text
    assert key_of(Account("ann", str(tmp_path)), "lab").id == "L"
    assert key_of(Account("ann", str(tmp_path)), "default").id == "A"


def test_what_cannot_be_put_in_its_place_leaves_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        keep(tmp_path, "default", "A", "B")
    assert not list((tmp_path / ".aws").iterdir())


@pytest.mark.parametrize(
    ("profile", "key_id", "secret"),
    [("a]b", "A", "B"), ("", "A", "B"), ("x", "", "B"), ("x", "A", ""), ("x", "A\nb", "B")],
)
def test_what_can_be_no_key_is_refused(
    tmp_path: Path, profile: str, key_id: str, secret: str
) -> None:
    with pytest.raises(Refused):
        keep(tmp_path, profile, key_id, secret)
    assert not (tmp_path / ".aws").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--region", "eu-west-1"), "There is no object store named"),
        (("--profile", "lab"), "There is no object store named"),
        (("--s3", "s3://b2b", "--public", "--profile", "lab"), "--public asks without a key"),
    ],
)
def test_what_would_be_ignored_is_refused(words: tuple[str, ...], told: str) -> None:
    done = allot("data", "create", "words", *words)
    assert (done.code, told in done.err) == (1, True), done.err
