"""What `allot doctor` says of turns, and of jobs whose time-outs are shorter."""

from pathlib import Path

import pytest

from allotment.cli.doctor_turns import short_timeouts, turns

CONFIG = """\
nodes: [{names: [n1], cpu: 4, memory: 8GiB}]
tenants:
  lab:
    queues:
      default: {}
      slow: {order: skip, time_slice: 90s}
      group: {queues: {inner: {order: skip, time_slice: auto}}}
"""


def test_the_turns_of_all_queues_are_told(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (found,) = turns(tmp_path)
    assert found.text == "jobs take turns: lab/inner 1 min 0 s, lab/slow 1 min 30 s"
    (tmp_path / "config.yaml").write_text("nodes: wrong\n")
    assert turns(tmp_path) == []


@pytest.mark.parametrize(
    ("said", "short"),
    [
        ("30", 30_000),
        (" 60 ", 60_000),
        ("61", 0),
        ("0", 0),
        ("soon", 0),
        ("", 0),
        ("9" * 5000, 0),
    ],
)
def test_a_time_out_is_short_if_one_turn_is_as_long(said: str, short: int) -> None:
    name = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
    assert short_timeouts({name: said}, 60_000) == ({name: short} if short else {})
    assert short_timeouts(None, 60_000) == {}
