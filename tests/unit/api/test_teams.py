"""Who becomes a tenant of a machine without a configuration."""

import pytest

from allotment.api import accounts
from allotment.api.accounts import teams_here, teams_of

NAMES = {1000: "ada", 1001: "bob", 1002: "cem", 1500: "vision", 1600: "nlp", 27: "sudo"}


@pytest.fixture(autouse=True)
def _groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_group_name", lambda gid: NAMES.get(gid, ""))


@pytest.mark.parametrize(
    ("people", "teams"),
    [
        ({}, []),
        ({1000: {1000, 27, 1500}}, []),  # one user: one tenant owns the machine
        ({1000: {1000, 27}, 1001: {1001, 27}}, ["ada", "bob"]),  # sudo is no team
        ({1000: {1000, 1500}, 1001: {1001, 1500}}, ["vision"]),
        ({1000: {1000, 1500}, 1001: {1001, 1500}, 1002: {1002, 1600}}, ["cem", "vision"]),
        ({1000: {1000, 1500, 1600}, 1001: {1500}, 1002: {1600}}, ["vision", "nlp"]),
    ],
)
def test_groups_that_people_share_are_teams(
    people: dict[int, set[int]], teams: list[str]
) -> None:
    assert teams_of({uid: frozenset(gids) for uid, gids in people.items()}) == teams


def test_a_users_own_service_has_no_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert teams_here() == []
