"""What `allot run` makes of a command and its surroundings."""

from pathlib import Path

import pytest

from allotment.cli.output import Failed
from allotment.cli.run import environment, job_of, name_of


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--lr", "1"], "train"),
        (["python3.11", "-m", "my.trainer"], "my.trainer"),
        (["/usr/bin/env", "LR=1", "bash", "-c", "echo"], "echo"),
        (["./my-run!.sh"], "my-run"),
        (["sh", "-c", "echo a; exit 3"], "echo"),
        (["python3", "-c", "import x; x.go()"], "python3"),
        (["torchrun", "--nproc", "2", "x.py"], "2"),
        (["true"], "true"),
        (["python"], "run"),
        (["Größe"], "Gr-e"),
        (["-"], "run"),
    ],
)
def test_a_job_is_named_after_its_command(command: list[str], name: str) -> None:
    assert name_of(command) == name


def test_a_name_that_can_be_one(tmp_path: Path) -> None:
    assert len(name_of(["x" * 500])) <= 60
    assert name_of(["..."]) == "run"


def test_one_quoted_text_is_a_shell_line() -> None:
    def command(*words: str) -> object:
        return job_of(
            list(words), name="", env={}, folder=Path("/w"), tasks=1, resources={}, rest={}
        )["command"]

    assert command("seq 3 | tac") == "seq 3 | tac"
    assert command("true") == ["true"]
    assert command("echo", "a b") == ["echo", "a b"]


def test_only_what_is_needed_of_the_environment_is_passed_on() -> None:
    here = {"PATH": "/bin", "LANG": "", "AWS_SECRET": "s", "X": "1"}
    assert environment(here, ["X", "Y=2=3"]) == {"PATH": "/bin", "X": "1", "Y": "2=3"}
    with pytest.raises(Failed, match="--env Z"):
        environment(here, ["Z"])
