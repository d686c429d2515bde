"""A private image is nobody else's, whatever the store has; a password goes to its registry."""

import json
import subprocess

from tests.support.registry import (
    MARKS,
    PASSWORD,
    USERS,
    Registry,
    WithUsers,
    a_file,
    busybox,
    digest,
    layer,
    login,
)
from tests.support.scripted import a_scripted_registry

pytestmark = MARKS
SECRET = layer(a_file("secret", "the weights\n"))


def test_a_private_image_runs_for_who_may_read_it_and_nobody_else(
    service: WithUsers, private: Registry
) -> None:
    exact = private.push("model", [busybox(), SECRET])
    name = f"{private.host}/model:1"
    by_digest = f"{private.host}/model@{exact}"
    assert "you have no login" in service.refused(name, "ann")
    done = service.allot(
        "image", "login", private.host, "--user", "ann", "--password-stdin",
        user="ann", input=f"{PASSWORD}\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kept = service.home("ann") / ".docker/config.json"
    assert (kept.stat().st_uid, kept.stat().st_mode & 0o777) == (USERS["ann"], 0o600)
    assert service.run(name, "cat /secret", "ann").output == "the weights\n"
    assert service.run(by_digest, "cat /secret", "ann").output == "the weights\n"
    for image in (name, by_digest):
        assert "may not read" in service.refused(image, "ben")
        path = f"/v1/images:inspect?image={image}"
        assert service.ask_as("ben", "GET", path)[0] == 403
        assert service.ask_as("ben", "POST", "/v1/images:warm", {"image": image})[0] == 403
    assert service.ask_as("ben", "GET", "/v1/images") == (200, None)
    status, rows = service.ask_as("ann", "GET", "/v1/images")
    assert (status, len(rows)) == (200, 1)
    service.log_in("ben", private, "wrong")
    assert "the password you have for it is refused" in service.refused(name, "ben")
    assert service.ask_as("ben", "POST", "/v1/images:remove", {"image": name})[0] == 403


def test_a_password_is_in_no_event_log_or_answer(service: WithUsers, private: Registry) -> None:
    private.push("model", [busybox(), SECRET])
    service.log_in("ann", private)
    job = service.run(f"{private.host}/model:1", "env; cat /proc/*/cmdline", "ann")
    events = json.dumps(service.get(f"/v1/jobs/{job.id}/events?limit=1000"))
    words = (PASSWORD, login("ann"))
    text = json.dumps(job.view) + job.output + events
    assert not any(word in text for word in words)
    for word in words:
        found = subprocess.run(
            ["grep", "-rlF", word, str(service.state)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stdout == ""


def test_a_layer_that_is_here_is_given_to_nobody_who_only_knows_its_name(
    service: WithUsers, private: Registry
) -> None:
    """Another registry, in the hands of a user, says that it has everything."""
    exact = private.push("model", [busybox(), SECRET])
    service.log_in("ann", private)
    assert service.run(f"{private.host}/model:1", "cat /secret", "ann").state == "succeeded"
    with a_scripted_registry() as evil:
        body = b"{}"
        evil.image("thief", busybox(), layer(a_file("x")), diff_ids=(
            digest(busybox()), digest(SECRET),
        ))  # fmt: skip
        job = service.run(f"{evil.host}/thief:1", "cat /secret", "ben")
        assert (job.state, job.diagnosis["code"]) == ("failed", "image_broken"), job.view
        evil.found[f"/v2/model/manifests/{exact}"] = body  # It says so; they are other bytes.
        said = service.refused(f"{evil.host}/model@{exact}", "ben")
        assert "sends other bytes" in said


def test_one_user_cannot_use_up_the_slots(service: WithUsers) -> None:
    with a_scripted_registry() as slow, a_scripted_registry() as quick:
        slow.pause.clear()
        for number in range(4):
            slow.image(f"slow-{number}", busybox(a_file("n", str(number))))
            service.submitted(f"{slow.host}/slow-{number}:1", "true", "ann")
        quick.image("quick", busybox(a_file("n", "quick")))
        assert service.run(f"{quick.host}/quick:1", "cat /n", "ben").output == "quick"
