"""Keys, control lines, requests: what is let in, and what is not."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.backends.local.runner import control, layout
from allotment.backends.local.runner.schema import BadRequest, request_from

GOOD = {"key": "1.1.worker.0", "argv": ["true"], "env": {}, "cwd": "/"}


@pytest.mark.parametrize(
    ("key", "folder"),
    [
        ("17.2.worker.0", "tasks/17/2/worker.0"),
        ("1.0.a.b-c_d.12", "tasks/1/0/a.b-c_d.12"),
        ("9" * 19 + ".1.w.0", "tasks/" + "9" * 19 + "/1/w.0"),
    ],
)
def test_a_key_is_a_folder(key: str, folder: str) -> None:
    assert layout.task_dir(key) == folder


@given(st.text(alphabet="0123456789./-_aZ\0 é", max_size=30))
def test_no_key_leads_out_of_the_tasks(key: str) -> None:
    try:
        folder = layout.task_dir(key)
    except ValueError:
        return
    parts = folder.split("/")
    assert (parts[0], len(parts)) == ("tasks", 4)
    assert not {"", ".", ".."} & set(parts)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("go", control.Instruction("go")),
        ("  kill ", control.Instruction("kill")),
        ("signal USR1", control.Instruction("signal", signal.SIGUSR1)),
        ("signal SIGUSR1", control.Instruction("signal", signal.SIGUSR1)),
        ("signal 10", control.Instruction("signal", 10)),
        ("stop TERM 10000", control.Instruction("stop", signal.SIGTERM, 10_000)),
        ("stop INT 99999999999999", control.Instruction("stop", signal.SIGINT, 604_800_000)),
        ("stop TERM", None),
        ("stop TERM -1", None),
        ("stop TERM 1.5", None),
        ("signal NOPE", None),
        ("signal 0", None),
        ("signal 999", None),
        ("go away", None),
        ("", None),
    ],
)
def test_a_line_of_control(line: str, found: control.Instruction | None) -> None:
    assert control.parse(line) == found


def test_a_good_request_is_taken_as_it_is() -> None:
    assert request_from(dict(GOOD)) == GOOD


@pytest.mark.parametrize("path", ["/a" * 151, "/" + "a" * 4095, "/é" + "a" * 4093, "/\ud800"])
def test_no_path_is_longer_than_paths_can_be(path: str) -> None:
    image = {"record": "x", "layers": ["a"], "passwd": "a", "group": "a", "uid": 1, "gid": 1}
    for more in (
        {"cwd": path}, {"read_only": [path]}, {"writable": [path]},
        {"image": {**image, "home": path}},
    ):  # fmt: skip
        with pytest.raises(BadRequest, match="path"):
            request_from(GOOD | more)
    assert request_from(GOOD | {"cwd": "/a" * 150})


@given(
    st.dictionaries(
        st.sampled_from(sorted([*GOOD, "uid", "gid", "groups", "pids", "read_only", "other"])),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.lists(st.integers()),
    )
)
def test_a_bad_request_is_a_bad_request(changes: dict[str, object]) -> None:
    """Never another error."""
    try:
        request_from(GOOD | changes)
    except BadRequest:
        return
