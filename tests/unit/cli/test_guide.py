"""The guide's pages name what is there."""

import re
from pathlib import Path

import pytest
import typer

from allotment.cli.app import VERBS, build
from allotment.client import Client

GUIDE = Path(__file__).parents[3] / "docs" / "guide"


def test_every_verb_is_in_the_guide() -> None:
    page = (GUIDE / "cli.md").read_text()
    assert [verb for verb in VERBS if f"`allot {verb}" not in page] == []


@pytest.mark.parametrize("name", ["cli.md", "first-job.md", "python.md"])
def test_the_guide_names_only_verbs_and_options_that_exist(name: str) -> None:
    page = (GUIDE / name).read_text()
    commands = typer.main.get_command(build(list(VERBS))).commands  # pyright: ignore
    for verb, rest in re.findall(r"\ballot ([a-z]+)([^`\n&|;]*)", page):
        if verb not in VERBS:
            continue
        command = commands[verb]
        words = rest.split()
        if words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words[0]]
        known = {option for param in getattr(command, "params", []) for option in param.opts}
        options = re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest.partition(" -- ")[0])
        assert [option for option in options if option not in known] == [], (verb, rest)


def test_every_method_of_the_client_is_in_the_guide() -> None:
    page = (GUIDE / "python.md").read_text()
    methods = [name for name in vars(Client) if not name.startswith("_")]
    assert [name for name in methods if name not in page] == []
