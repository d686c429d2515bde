"""What `allot run` makes of a command and its surroundings."""

import io
import re
from pathlib import Path

import pytest

from allotment.cli.output import Failed
from allotment.cli.run import (
    checkpoint_of,
    data_of,
    environment,
    job_of,
    level_of,
    name_of,
    secrets_of,
)


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


def test_a_dataset_without_a_path_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Failed, match="no such folder") as told:
        data_of(["words@2"])
    assert "--data words@2=/data/NAME" in told.value.hint
    (tmp_path / "words").mkdir()
    assert data_of(["words"]) == str(tmp_path / "words")
    assert data_of(["words=/data/words"]) == {"words": "/data/words"}


def test_only_what_is_needed_of_the_environment_is_passed_on() -> None:
    here = {"PATH": "/bin", "LANG": "", "AWS_SECRET": "s", "X": "1"}
    assert environment(here, ["X", "Y=2=3"]) == {"PATH": "/bin", "X": "1", "Y": "2=3"}
    with pytest.raises(Failed, match="--env Z"):
        environment(here, ["Z"])


def test_a_priority_of_0_is_said() -> None:
    assert level_of("0") == {"priority": 0}
    assert level_of("high") == {"priority": "high"}
    assert level_of("") == {}


# ── secrets and checkpoints ─────────────────────────────────────────────────────────────


def test_secrets_come_from_the_environment_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from file\r\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"two\nlines\n")))
    asked = ["KEY", f"TOKEN={tmp_path / 'token'}", "PIPED=-"]
    assert secrets_of(asked, {"KEY": "from here\n"}) == {
        "KEY": "from here\n",
        "TOKEN": "from file",
        "PIPED": "two\nlines",
    }


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["NOPE"], "--secret NOPE: it is not set here"),
        (["A=hunter22"], "--secret A: the source after `=` cannot be read"),
        (["A=-", "B=-"], "Only one --secret"),
        (["A=\0hunter22"], "--secret A: the source after `=` cannot be read"),
    ],
)
def test_a_secret_that_cannot_be_read_is_told_without_it(
    asked: list[str], message: str
) -> None:
    with pytest.raises(Failed, match=re.escape(message)) as caught:
        secrets_of(asked, {})
    assert "hunter22" not in f"{caught.value.message} {caught.value.hint}"


def test_a_secret_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    with pytest.raises(Failed, match="it is not text"):
        secrets_of([f"K={tmp_path / 'key'}"], {})


def test_how_a_job_saves_is_said_as_in_a_job_file() -> None:
    assert checkpoint_of("signal=USR1, grace=60s") == {"signal": "USR1", "grace": "60s"}
    assert checkpoint_of("") == {}
    assert checkpoint_of("save=weights,keep=3") == {"save": "weights", "keep": 3}
    assert checkpoint_of("keep=many") == {"keep": "many"}
    with pytest.raises(Failed, match="USR1 is not KEY=VALUE"):
        checkpoint_of("USR1")
