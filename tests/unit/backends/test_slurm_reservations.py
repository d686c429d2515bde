"""Slurm's reservations: read, whose they are, and until when a job may run beside them."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from allotment.backends.contact import Contact
from allotment.backends.pilot.spell import Spell, spell_of
from allotment.backends.slurm import client
from allotment.backends.slurm.nodes import NodeWatch
from allotment.backends.slurm.request import lasting_of
from allotment.backends.slurm.reservations import Calendar, Holder, Uses, reservations_of
from allotment.backends.slurm.reservations import SlurmReservation as Kept
from allotment.backends.slurm.rest_shapes import reservations_in
from allotment.backends.slurm.settings import Partition
from allotment.cli.doctor_finding import Level
from allotment.cli.doctor_slurm import reservation_findings
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BackendError
from allotment.model.quantity import MINUTE, Millis, WallTime
from allotment.service.ports import GangLaunch

NOW = WallTime(1_795_672_000_000)
SLURM = EngineSetup("gpus", EngineType.SLURM, accounts=(("vision", "research"),))
PILOT = EngineSetup("gpus", EngineType.PILOT)
REST_OF_LINE = (
    "NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) Flags={flags} TRES=cpu=4 "
    "Users={users} Groups={groups} Accounts={accounts} Licenses=(null) State=INACTIVE "
    "BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)


def line(name: str, nodes: str, **more: str) -> str:
    told = {"flags": "SPEC_NODES", "users": "(null)", "groups": "(null)", "accounts": "(null)"}
    return (
        f"ReservationName={name} StartTime=2026-11-26T05:56:23 EndTime=2026-11-26T06:06:23 "
        f"Duration=00:10:00 Nodes={nodes} {REST_OF_LINE.format(**{**told, **more})}"
    )


def kept(name: str, begin: int, end: int, *nodes: str, **more: Sequence[str]) -> Kept:
    """Return a reservation that begins and ends so many minutes from now."""
    lists = {key: tuple(words) for key, words in more.items()}
    return Kept(name, NOW + begin * MINUTE, NOW + end * MINUTE, nodes, **lists)


def calendar(*all_: Kept, setup: EngineSetup = SLURM, user: str = "root") -> Calendar:
    return Calendar(setup, user, all_)


def test_what_scontrol_says_is_read_with_odd_names_and_what_has_no_nodes_left_out() -> None:
    text = "\n".join(
        (
            line("fans", "n[1-2],gpu07", flags="MAINT,SPEC_NODES", users="root"),
            line("odd name|x StartTime", "n1", users="-ada,bob", accounts="research"),
            line("licenses", "(null)"),
            line("never", "n1").replace("2026-11-26T05:56:23", "Unknown"),
            "No reservations in the system",
        )
    )
    fans, odd = reservations_of(text)
    assert fans == Kept(
        "fans", 1_795_672_583_000, 1_795_673_183_000, ("n1", "n2", "gpu07"),
        users=("root",), flags=("MAINT", "SPEC_NODES"),
    )  # fmt: skip
    assert fans.is_maintenance
    assert (odd.name, odd.users, odd.accounts) == (
        "odd name|x StartTime", ("-ada", "bob"), ("research",),
    )  # fmt: skip


def test_what_slurmrestd_says_is_the_same_in_old_and_new_words() -> None:
    old = {
        "name": "fans", "start_time": 1_795_672_583, "end_time": 1_795_673_183,
        "node_list": "n[1-2]", "users": "root,ada", "accounts": "", "groups": "",
        "flags": ["MAINT"], "core_count": 4,
    }  # fmt: skip
    new = {
        **old,
        "start_time": {"set": True, "infinite": False, "number": 1_795_672_583},
        "end_time": {"set": True, "infinite": False, "number": 1_795_673_183},
    }
    none = {**old, "node_list": ""}
    for told in (old, new):
        said = json.dumps({"reservations": [told, none], "errors": []}).encode()
        assert reservations_in(said) == (
            Kept(
                "fans", 1_795_672_583_000, 1_795_673_183_000, ("n1", "n2"),
                users=("root", "ada"), flags=("MAINT",),
            ),
        )  # fmt: skip
    with pytest.raises(BackendError, match="not understood"):
        reservations_in(b'{"errors": []}')


@pytest.mark.parametrize(
    ("its", "setup", "user", "uses"),
    [
        (kept("r", 0, 9, "n1", users=["ada", "root"]), SLURM, "root", Uses(users=("ada",))),
        (kept("r", 0, 9, "n1", accounts=["research"]), SLURM, "root", Uses((), ("vision",))),
        (kept("r", 0, 9, "n1", users=["ada"], flags=["MAINT"]), SLURM, "root", Uses()),
        (kept("r", 0, 9, "n1", users=["ada"], accounts=["research"]), SLURM, "root", Uses()),
        (kept("r", 0, 9, "n1", users=["-ada"]), SLURM, "root", Uses()),
        (kept("r", 0, 9, "n1", groups=["lab"]), SLURM, "root", Uses()),
        (kept("r", 0, 9, "n1", users=["ada"]), SLURM, "ada", Uses(all=True)),
        (kept("r", 0, 9, "n1", users=["ada"]), SLURM, "bob", Uses()),
        (kept("r", 0, 9, "n1", users=["root", "ada"]), PILOT, "root", Uses()),
        (kept("r", 0, 9, "n1", users=["ada"]), PILOT, "ada", Uses(all=True)),
        (kept("r", 0, 9, "n1", flags=["MAINT"]), PILOT, "root", Uses()),
    ],
)
def test_whose_a_reservation_is(its: Kept, setup: EngineSetup, user: str, uses: Uses) -> None:
    assert calendar(setup=setup, user=user).uses(its) == uses
    named = msgspec.structs.replace(setup, reservation="r")
    assert calendar(setup=named, user=user).uses(its) == Uses(all=True)


def test_nobody_may_reach_into_a_reservation_and_its_users_may_use_it_once_it_began() -> None:
    mine, fans = (
        kept("mine", 10, 60, "n1", users=["ada"]),
        kept("fans", 90, 120, "n1", "n2", users=["root"], flags=["MAINT"]),
    )
    book = calendar(mine, fans)
    before = {its.name: its for its in book.found(NOW)}
    assert (before["mine"].users, before["mine"].shut) == (("ada",), True)
    assert (before["fans"].users, before["fans"].shut) == ((), True)
    later = WallTime(NOW + 10 * MINUTE)
    assert [its.shut for its in book.found(later)] == [False, True]
    assert not list(book.found(WallTime(NOW + 120 * MINUTE)))
    ours = calendar(mine, setup=msgspec.structs.replace(SLURM, reservation="mine"))
    assert [its.shut for its in ours.found(NOW)] == [True]
    assert not list(ours.found(later))
    ada, bob = Holder("ada"), Holder("bob")
    assert [book.named(["n1"], who, at) for who in (ada, bob) for at in (NOW, later)] == [
        "", "mine", "", "",
    ]  # fmt: skip
    assert book.named(["n1", "n2"], ada, later) == ""


def test_a_reservation_that_stays_ahead_is_told_of_in_steps() -> None:
    (one,) = calendar(kept("f", 61, 121, "n1", flags=["TIME_FLOAT"])).found(NOW)
    (two,) = calendar(kept("f", 62, 122, "n1", flags=["TIME_FLOAT"])).found(NOW)
    assert one == two
    assert one.begin <= NOW + 61 * MINUTE


@pytest.mark.parametrize(
    ("limit_min", "partition", "user", "options"),
    [
        (10, None, "bob", ["--time=15"]),
        (28, None, "bob", ["--time=30"]),
        (0, None, "bob", ["--time=30", "--signal=B:USR2@65"]),
        (0, Partition("p", 20), "bob", ["--signal=B:USR2@65"]),
        (0, Partition("p", 1), "bob", ["--signal=B:USR2@30"]),
        (0, Partition("p", 50, default_min=25), "bob", ["--signal=B:USR2@65"]),
        (0, Partition("p", 50), "bob", ["--time=30", "--signal=B:USR2@65"]),
        (90, None, "ada", ["--reservation=mine", "--time=60", "--signal=B:USR2@65"]),
    ],
)
def test_a_job_in_slurm_ends_before_the_next_reservation_and_is_told_before_slurm_ends_it(
    limit_min: int, partition: Partition | None, user: str, options: list[str]
) -> None:
    gang = GangLaunch(
        (), "/", limit_ms=Millis(limit_min * MINUTE), labels=(("user", user),),
        warning=("USR1", Millis(60_000)),
    )  # fmt: skip
    book = calendar(
        kept("fans", 30, 40, "n1", flags=["MAINT"]),
        kept("mine", -5, 60, "n2", users=["ada"]),
        kept("over", -9, -1, "n1", "n2"),
    )
    nodes = ["n2"] if user == "ada" else ["n1"]
    assert lasting_of(gang, nodes, book, partition, NOW) == options
    assert lasting_of(gang, ["n3"], calendar(), None, NOW) == options[:0] + (
        [f"--time={limit_min + 5}"] if limit_min else []
    )


def test_a_job_on_nodes_in_and_out_of_a_reservation_is_refused() -> None:
    gang = GangLaunch((), "/", labels=(("user", "ada"),))
    book = calendar(kept("mine", -5, 60, "n2", users=["ada"]))
    with pytest.raises(BackendError, match="Slurm's reservation mine is in force on n1, n2"):
        lasting_of(gang, ["n1", "n2"], book, None, NOW)


@pytest.mark.parametrize(
    ("its", "usual_min", "spell"),
    [
        ((), None, Spell()),
        ((kept("r", 30, 40, "n1"),), None, Spell(("--time=29",))),
        ((kept("r", 30, 40, "n1"),), 20, Spell()),
        ((kept("r", -1, 40, "n1", users=["ada"]),), 20, Spell(("--reservation=r",))),
        (
            (kept("r", -1, 15, "n1", users=["ada"]),),
            20,
            Spell(("--reservation=r", "--time=14")),
        ),
        ((kept("r", -1, 40, "n2"),), None, Spell()),
    ],
)
def test_a_node_is_held_until_the_next_reservation(
    its: tuple[Kept, ...], usual_min: int | None, spell: Spell
) -> None:
    book = calendar(*its, setup=PILOT, user="ada")
    assert spell_of("n1", book, usual_min, NOW) == spell


@pytest.mark.parametrize(("begin", "why"), [(4, "fans is near"), (-1, "fans is in force")])
def test_a_node_is_not_held_shortly_before_a_reservation_nor_in_it(
    begin: int, why: str
) -> None:
    book = calendar(kept("fans", begin, 40, "n1"), setup=PILOT)
    assert why in spell_of("n1", book, None, NOW).shut


def test_what_slurm_told_of_last_counts_where_it_refuses_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = "echo 'slurm_load_reservations error: Access/permission denied' >&2; exit 1"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    watch = NodeWatch(client, list, "main", Contact("Slurm", "jobs"), lambda report: None)

    def looks(scontrol: str) -> tuple[str, ...] | None:
        for name, script in (("sinfo", "exit 0"), ("scontrol", scontrol)):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        watch.hurry(reserved=True)
        asyncio.run(watch.look())
        there = watch.reservations
        return None if there is None else tuple(its.name for its in there)

    assert looks(refuses) is None
    assert looks(f"echo '{line('fans', 'n1')}'") == ("fans",)
    assert looks(refuses) == ("fans",)
    assert looks("exit 0") == ()


@pytest.mark.parametrize(
    ("its", "level", "words"),
    [
        ((kept("mine", 0, 9, "n1", "n9"),), Level.OK, "mine: 1 node"),
        ((kept("other", 0, 9, "n1"),), Level.WARN, "no reservation mine; it has other"),
        ((), Level.WARN, "no reservation mine; it has none"),
        ((kept("mine", 0, 9, "n9"),), Level.WARN, "mine has no node of partition main"),
        ((kept("mine", 0, 9, "n1", flags=["MAINT"]),), Level.WARN, "mine is for maintenance"),
    ],
)
def test_the_doctor_says_whether_the_reservation_that_is_named_is_of_use(
    its: tuple[Kept, ...], level: Level, words: str
) -> None:
    setup = EngineSetup("gpus", EngineType.SLURM, "main", reservation="mine")
    (finding,) = reservation_findings(setup, its, {"n1", "n2"})
    assert (finding.level, words in finding.text) == (level, True), finding.text
    assert not list(reservation_findings(SLURM, its, {"n1"}))
