"""An elastic job of real processes gives up tasks to an owner, and goes on with the rest."""

from pathlib import Path

from tests.support.cluster import RealCluster, a_real_cluster, until

CONFIG = """
virtual_gpus: {type: virtual, count: 4}
tenants:
  owner: {guaranteed: {gpu: 4}}
  guest:
"""

TRAIN = """
trap 'echo told to go >> $ALLOT_OUTPUT_DIR/log.$RANK; exit 1' TERM
echo $RANK of $WORLD_SIZE >> $ALLOT_OUTPUT_DIR/log.$RANK
while [ ! -e $ALLOT_OUTPUT_DIR/done ]; do
  echo $(cat $ALLOT_TASKS_FILE) > $ALLOT_OUTPUT_DIR/size.$RANK
  sleep 0.05
done
"""


def a_job(tenant: str, command: str, **more: object) -> dict[str, object]:
    need = {"cpu": 0.05, "memory": "64MiB", "gpu": 1}
    return {"name": "job", "tenant": tenant, "command": command, "resources": need, **more}


def job(cluster: RealCluster, number: int) -> dict[str, object]:
    return cluster.get(f"/v1/jobs/{number}")["row"]


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_an_elastic_job_shrinks_and_succeeds(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, CONFIG) as cluster:
        count = {"min": 1, "max": 8, "elastic": True}
        guest = cluster.submit(a_job("guest", TRAIN, count=count))
        cluster.wait_for(guest, "running")
        assert job(cluster, guest)["tasks"] == 4
        output = cluster.state / "outputs" / str(guest) / "attempt-1"
        until(lambda: text_of(output / "size.0") == "4\n", "the tasks to know their number")
        owner = cluster.submit(a_job("owner", "sleep 600", count=3))
        cluster.wait_for(owner, "running")
        assert job(cluster, guest)["state"] == "running"
        until(lambda: job(cluster, guest)["tasks"] == 1, "the job to have one task")
        until(lambda: text_of(output / "size.0") == "1\n", "it to be told")
        assert text_of(output / "log.0") == "0 of 4\n"
        for rank in (1, 2, 3):
            assert text_of(output / f"log.{rank}") == f"{rank} of 4\ntold to go\n"
        (output / "done").touch()
        cluster.wait_for(guest, "succeeded")
        said = cluster.allot("events", str(guest)).stdout
        assert "shrinks to 1 task(s)" in said
        assert "continues with 1 task(s)" in said
