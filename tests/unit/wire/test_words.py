"""Names, paths, commands, environment, priorities, signals."""

from collections.abc import Callable

import pytest

from allotment.model.spec import Arch
from allotment.wire import words
from allotment.wire.amiss import Amiss


@pytest.mark.parametrize("name", ["a", "train-1", "A.b_c", "7", "x" * 128])
def test_a_name(name: str) -> None:
    assert words.read_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../x",
        "a/b",
        "..",
        ".x",
        "-x",
        "a b",
        "a\n",
        "a\0",
        "ä",
        "x" * 129,
        7,
        None,
        [],
        True,
    ],
)
def test_no_name(name: object) -> None:
    with pytest.raises(Amiss):
        words.read_name(name)


@pytest.mark.parametrize("path", ["", "/data/x", "relative/x", "/a b/c", "~/x", "/a..b"])
def test_a_path(path: str) -> None:
    assert words.read_path(path) == path


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a/../b", "step up"),
        ("..", "step up"),
        ("hdfs://host/x", "is an address"),
        ("/a\nb", "line break"),
        ("/a\0b", "control character"),
        ("/a\x1b[31m", "control character"),
        (" /a", "starts or ends with a blank"),
        ("/" + "a" * 2000, "2001 characters"),
        ("...", "placeholder"),
        (3, "must be a text, not 3"),
    ],
)
def test_no_path(path: object, message: str) -> None:
    with pytest.raises(Amiss, match=message):
        words.read_path(path)


def test_a_command_is_a_line_or_a_list() -> None:
    assert words.read_command("a | b\nc\n") == "a | b\nc\n"
    assert words.read_command(["sleep", 5, "", True]) == ("sleep", "5", "", "true")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "must not be empty"),
        ("  \n", "must not be empty"),
        ([], "must not be empty"),
        (["", "x"], "must not be empty"),
        ("a\0b", "NUL"),
        ("...", "placeholder"),
        ({}, "must be a shell line or a list of arguments, not a map"),
        (5, "must be a shell line"),
    ],
)
def test_no_command(command: object, message: str) -> None:
    with pytest.raises(Amiss, match=message):
        words.read_command(command)


def test_a_bad_argument_is_pointed_at() -> None:
    with pytest.raises(Amiss) as caught:
        words.read_command(["a", None])
    assert caught.value.at == (1,)


@pytest.mark.parametrize("name", ["ALLOT_X", "allot_x", "1A", "A-B", "A=B", "", "A\0", 3])
def test_no_variable_of_the_users(name: object) -> None:
    with pytest.raises(Amiss):
        words.read_variable(name)


@pytest.mark.parametrize(("value", "text"), [("x", "x"), (3, "3"), (True, "true"), ("", "")])
def test_a_value_of_a_variable(value: object, text: str) -> None:
    assert words.read_env_value(value) == text


@pytest.mark.parametrize("value", [None, [], {}, "a\0b", 1 << 70])
def test_no_value_of_a_variable(value: object) -> None:
    with pytest.raises(Amiss):
        words.read_env_value(value)


@pytest.mark.parametrize("value", [["hunter2"], {"from": "hunter2"}, 3.25, "hunter2\0"])
def test_a_secret_never_gets_into_a_message(value: object) -> None:
    with pytest.raises(Amiss) as caught:
        words.read_secret(value)
    assert "hunter2" not in str(caught.value) + caught.value.hint
    assert "3.25" not in str(caught.value) + caught.value.hint


def test_a_redacted_secret_is_no_secret() -> None:
    with pytest.raises(Amiss, match="shown in place of a secret"):
        words.read_secret("***")


@pytest.mark.parametrize(
    ("word", "number"), [("low", 10), ("normal", 100), ("high", 500), (0, 0), (1000, 1000)]
)
def test_a_priority(word: object, number: int) -> None:
    assert words.read_priority(word) == number


@pytest.mark.parametrize("word", [-1, 1001, "urgent", True, 1.5, None])
def test_no_priority(word: object) -> None:
    with pytest.raises(Amiss):
        words.read_priority(word)


@pytest.mark.parametrize(("word", "name"), [("SIGUSR1", "USR1"), ("term", "TERM")])
def test_a_signal(word: str, name: str) -> None:
    assert words.read_signal(word) == name


@pytest.mark.parametrize(
    ("word", "message"),
    [("KILL", "no program can catch KILL"), ("BOO", "name of a signal"), (15, "not 15")],
)
def test_no_signal(word: object, message: str) -> None:
    with pytest.raises(Amiss, match=message):
        words.read_signal(word)


@pytest.mark.parametrize(
    ("word", "arch"), [("amd64", Arch.X86_64), ("aarch64", Arch.ARM64), ("any", Arch.ANY)]
)
def test_an_architecture_goes_by_many_names(word: str, arch: Arch) -> None:
    assert words.read_arch(word) == arch


@pytest.mark.parametrize("reader", [words.read_arch, words.read_line, words.read_user])
@pytest.mark.parametrize("value", [None, 3, True, [], {}, "a\nb"])
def test_wrong_kinds_are_amiss(reader: Callable[[object], object], value: object) -> None:
    with pytest.raises(Amiss):
        reader(value)
