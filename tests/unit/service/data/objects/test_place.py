"""Where object stores may be, and with which keys they are asked."""

import socket
from pathlib import Path

import pytest

from allotment.model.errors import Rejected
from allotment.service.data.objects import address
from allotment.service.data.objects.address import BadAddress, checked, connection
from allotment.service.data.objects.keys import key_of
from allotment.service.data.objects.place import place_of
from allotment.service.data.objects.trouble import StoreTrouble
from allotment.service.data.view import ObjectsNote
from allotment.service.launch import Account

NEAR = "http://localhost:9000"


@pytest.mark.parametrize(
    ("url", "prefix"),
    [("s3://models", ""), ("s3://models/", ""), ("s3://models/a/b/", "a/b"),
     ("s3://models/a b?", "a b?")],
)  # fmt: skip
def test_a_bucket_and_a_prefix(url: str, prefix: str) -> None:
    found = place_of(ObjectsNote(url, region="eu-central-1"))
    assert (found.bucket, found.prefix) == ("models", prefix)
    assert found.endpoint == "https://s3.eu-central-1.amazonaws.com"


@pytest.mark.parametrize(
    "note",
    [
        ObjectsNote("models/a"),
        ObjectsNote("s3://"),
        ObjectsNote("s3://a/../b"),
        ObjectsNote("s3:///a"),
        ObjectsNote("s3://models/a//b"),
        ObjectsNote("s3://models/../b"),
        ObjectsNote("s3://models/a\n"),
        ObjectsNote("s3://models/" + "a" * 1000),
        ObjectsNote("s3://models", region="a/b"),
        ObjectsNote("s3://models", region="evil.org#"),
        ObjectsNote("s3://models", profile="a]b"),
    ],
)
def test_what_names_no_place_is_refused(note: ObjectsNote) -> None:
    with pytest.raises(Rejected, match="objects:"):
        place_of(note)


@pytest.mark.parametrize(
    "endpoint",
    ["https://s3.example.org", "https://10.1.2.3:9000", NEAR, "http://127.0.0.1:80",
     "https://[2001:db8::1]:443", "http://[::1]:9000"],
)  # fmt: skip
def test_an_address_of_a_store(endpoint: str) -> None:
    assert checked(endpoint) == endpoint
    assert checked(f"{endpoint}/") == endpoint


@pytest.mark.parametrize(
    "endpoint",
    ["", "s3.example.org", "ftp://s3.example.org", "http://s3.example.org", "http://10.1.2.3",
     "https://me:secret@s3.example.org", "https://s3.example.org/path", "https://h?x=y",
     "https://h#f", "https://", "https://h:0", "https://h:99999", "https://h:x",
     "https://a b", "https://h\r\nX: y", "https://ü.org", "http://127.1.evil.org",
     "http://localhost.evil.org", "https://" + "a" * 600],
)  # fmt: skip
def test_what_can_be_no_address_of_a_store(endpoint: str) -> None:
    with pytest.raises(BadAddress):
        checked(endpoint)


@pytest.mark.parametrize(
    "leads_to",
    ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1",
     "fd00:ec2::254", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "224.0.0.1", "240.0.0.1"],
)  # fmt: skip
def test_a_store_elsewhere_leads_to_nothing_here(
    leads_to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = socket.AF_INET6 if ":" in leads_to else socket.AF_INET
    found = [(family, socket.SOCK_STREAM, 6, "", (leads_to, 443))]
    monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_, **__: found)
    for endpoint in ("https://s3.example.org", f"https://{_host(leads_to)}"):
        if endpoint.startswith("https://127.") or endpoint == "https://[::1]":
            continue  # It says that it is here.
        with pytest.raises(StoreTrouble, match="is this machine's own, or a special one"):
            connection(endpoint, None).connect()


def _host(text: str) -> str:
    return f"[{text}]" if ":" in text else text


def test_a_store_here_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 9000))]
    monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(StoreTrouble, match="which is not this machine"):
        connection(NEAR, None).connect()


def test_of_a_name_with_many_addresses_few_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as shut:
        closed = shut.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as open_one:
        there = open_one.getsockname()
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", to) for to in [closed] * 4]
        monkeypatch.setattr(address.socket, "getaddrinfo", lambda *_, **__: found)
        found[-1] = (socket.AF_INET, socket.SOCK_STREAM, 6, "", there)
        made = connection(NEAR, None)
        made.connect()
        made.close()
        found.insert(0, found[0])
        with pytest.raises(ConnectionRefusedError):
            connection(NEAR, None).connect()


# ── keys ────────────────────────────────────────────────────────────────────────────────


def keys(home: Path, text: str) -> Account:
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text(text)
    return Account("ann", str(home))


def test_a_key_is_that_of_its_profile(tmp_path: Path) -> None:
    account = keys(
        tmp_path,
        "# mine\n[default]\naws_access_key_id=A\naws_secret_access_key = B%(x)s\n\n"
        "[lab 1]\naws_access_key_id = C\naws_secret_access_key = D\naws_session_token = E\n",
    )
    found = key_of(account, "default")
    assert (found.id, found.secret, found.token) == ("A", "B%(x)s", "")
    found = key_of(account, "lab 1")
    assert (found.id, found.secret, found.token) == ("C", "D", "E")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no key of profile default"),
        ("[other]\naws_access_key_id=A\naws_secret_access_key=B\n", "no key of profile"),
        ("[default]\naws_access_key_id=A\n", "no key of profile default"),
        ("[default]\ncredential_process = /bin/evil\n", "has credential_process"),
        ("[default]\naws_access_key_id=A\naws_secret_access_key=B\nrole_arn=x\n", "role_arn"),
        ("secret words\n", "not what AWS's tools write"),
    ],
)
def test_where_there_is_no_key_that_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(StoreTrouble, match=said) as caught:
        key_of(keys(tmp_path, text), "default")
    assert "secret words" not in str(caught.value)
    assert "evil" not in str(caught.value)


def test_without_a_file_there_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(StoreTrouble, match="no key of profile default"):
        key_of(Account("ann", str(tmp_path)), "default")
