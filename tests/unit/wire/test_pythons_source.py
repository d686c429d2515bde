"""Where Pythons are fetched from, as the configuration says it."""

import pytest

from allotment.model.errors import BadInput
from allotment.wire.config import config_to_wire, read_config

REST = "nodes: [{name: n1, cpu: 8, memory: 32GiB}]\ntenants: {t: {}}\n"


def read(line: str) -> tuple[str, object]:
    config, _ = read_config(f"{REST}{line}".encode(), source="c.yaml", machine=None)
    return config.pythons, config_to_wire(config).get("pythons")


@pytest.mark.parametrize("source", ["https://h/x", "file:///srv/x", "http://h:1/x/list.json"])
def test_a_mirror_or_a_list_is_read_and_written(source: str) -> None:
    assert read(f"pythons: {source}/\n") == (source, source)
    assert read("") == ("", None)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("/srv/pythons", "not an address of HTTP or of a folder"),
        ("file://srv/pythons", "not an address of HTTP or of a folder"),
        ("https://ann:secret@h/x", "has a password"),
        ("https://h/x?token=1", "more than a host"),
    ],
)
def test_what_is_no_source_is_refused(source: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(f"pythons: {source}\n")
    assert told in str(caught.value)
