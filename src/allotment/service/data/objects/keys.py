"""A user's keys for object stores: the file of AWS's tools in the user's home.

It is read with the user's rights when a store is asked. From there a key goes into signatures,
and nowhere else.
"""

import configparser
from typing import Final

from allotment.rights.reading import read_small
from allotment.service.data.objects.signing import Key
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.launch import Account

FILE: Final = ".aws/credentials"
_MOST_BYTES: Final = 1 << 20
_ELSEWHERE: Final = ("credential_process", "role_arn", "sso_session", "sso_start_url")


def key_of(account: Account, profile: str) -> Key:
    """Return the key of a profile. May block. Raises StoreTrouble."""
    data = read_small(f"{account.home.rstrip('/')}/{FILE}", account.identity, _MOST_BYTES)
    told = configparser.RawConfigParser(strict=False)
    try:
        told.read_string((data or b"").decode())
    except (configparser.Error, UnicodeDecodeError):
        # What it says is not shown: there are secrets in it.
        raise StoreTrouble(
            Kind.DENIED, f"~/{FILE} of {account.name} is not what AWS's tools write."
        ) from None
    found = dict(told[profile]) if told.has_section(profile) else {}
    made = Key(
        found.get("aws_access_key_id", "").strip(),
        found.get("aws_secret_access_key", "").strip(),
        found.get("aws_session_token", "").strip(),
    )
    if other := next((name for name in _ELSEWHERE if name in found), ""):
        raise StoreTrouble(
            Kind.DENIED,
            f"The profile {profile} of {account.name} has {other}, which the service does not "
            "support.",
        )
    if not (made.id and made.secret):
        raise StoreTrouble(
            Kind.DENIED, f"There is no key of profile {profile} in ~/{FILE} of {account.name}."
        )
    if not all(text.isascii() and text.isprintable() for text in (made.id, made.token)):
        raise StoreTrouble(
            Kind.DENIED, f"The key of profile {profile} of {account.name} cannot be one."
        )
    return made
