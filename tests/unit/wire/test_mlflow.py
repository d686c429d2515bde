"""Where experiments are tracked: what the configuration may say, and where jobs reach it."""

from pathlib import Path

import pytest

from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BadInput
from allotment.model.tracking import MlflowSetup
from allotment.wire.config import config_to_wire, read_config
from allotment.wiring.engines import Engines
from tests.support.builders import a_node

REST = "nodes: [{name: n0, cpu: 4, memory: 8GiB}]\ntenants: {vision: }\n"


def read(mlflow: str) -> MlflowSetup | None:
    return read_config(f"{REST}mlflow: {mlflow}\n".encode(), source="c.yaml", machine=None)[
        0
    ].mlflow


@pytest.mark.parametrize(
    ("text", "setup", "address"),
    [
        ("{url: 'https://m.example.org/'}", MlflowSetup("https://m.example.org"), ""),
        ("{start: true}", MlflowSetup("", 5000), "http://127.0.0.1:5000"),
        (
            "{start: true, port: 5001, program: /opt/mlflow}",
            MlflowSetup("", 5001, "/opt/mlflow"),
            "http://127.0.0.1:5001",
        ),
    ],
)
def test_a_server_is_named_or_started(text: str, setup: MlflowSetup, address: str) -> None:
    found = read(text)
    assert found is not None
    assert found == setup
    assert found.address == (address or setup.url)
    config, _ = read_config(f"{REST}mlflow: {text}\n".encode(), source="c.yaml", machine=None)
    written = config_to_wire(config)["mlflow"]
    assert read(str(written).replace("True", "true")) == setup


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("{}", "mlflow", "neither where a server is"),
        ("{start: false}", "mlflow", "neither where a server is"),
        ("{url: http://h, start: true}", "mlflow.start", "is given beside"),
        ("{url: http://h, port: 5000}", "mlflow.port", "is for a server"),
        ("{url: 'http://me:secret@h'}", "mlflow.url", "has a password"),
        ("{url: 'ftp://h'}", "mlflow.url", "is not an address of HTTP"),
        ("{url: 'http://h:99999'}", "mlflow.url", "is not an address"),
        ("{url: 'http://h/?a=b'}", "mlflow.url", "has more than a host"),
        ("{start: true, program: mlflow}", "mlflow.program", "is not an absolute path"),
        ("{start: true, port: 80}", "mlflow.port", "at least 1024"),
    ],
)
def test_what_is_no_server_is_refused(text: str, path: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        read(text)
    assert refused.value.problems[0].path == path
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("mlflow", ["{start: true}", "{url: http://localhost:5000}"])
def test_jobs_of_other_machines_are_sent_to_no_loopback(tmp_path: Path, mlflow: str) -> None:
    setup = EngineSetup("", EngineType.SLURM, "main")
    engines = Engines(tmp_path, (setup,), None, {"": (a_node(0, 1),)})
    text = (
        f"nodes: [{{name: n0, cpu: 4, memory: 8GiB}}]\ntenants: {{vision: }}\nmlflow: {mlflow}"
    )
    with pytest.raises(BadInput, match="jobs on the nodes do not reach http://"):
        engines.read(text.encode(), "c.yaml")
