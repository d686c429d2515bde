"""docs/guide/simulate.md and `--help` name every policy and every setting there is."""

import re
from pathlib import Path

from allotment.cli.sim_options import POLICIES, SETTINGS
from allotment.sim.catalogue import RECIPES
from allotment.sim.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "simulate.md").read_text()


def test_the_help_names_every_policy_and_setting() -> None:
    assert POLICIES.split(", ") == list(RECIPES)
    listed = [re.split(r"  +", line.strip(), maxsplit=1) for line in SETTINGS.splitlines()[2:]]
    named = [name for _, names in listed for name in names.split(", ")]
    assert sorted(named) == sorted(
        name.removesuffix("_ms") for name in Settings.__struct_fields__
    )


def first_cells(heading: str) -> set[str]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([\w-]+)`", row)}


def test_every_policy_is_there() -> None:
    assert first_cells("Policies") == set(RECIPES)


def test_every_setting_is_there() -> None:
    known = {name.removesuffix("_ms") for name in Settings.__struct_fields__}
    assert first_cells("Settings") == known
