"""Names, passwords and manifests of images, without a registry."""

import asyncio
import base64
import json
from pathlib import Path

import msgspec
import pytest

from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.local.backend import LocalBackend
from allotment.backends.local.images.credentials import basic_of
from allotment.backends.local.images.fetching import look
from allotment.backends.local.images.helper import LoginHelpers
from allotment.backends.local.images.manifest import architecture, config_from, manifest_from
from allotment.backends.local.images.registry import Registry
from allotment.backends.local.images.trouble import ImageTrouble
from allotment.backends.local.runner.user_namespace import too_old
from allotment.backends.slurm.backend import SlurmBackend
from allotment.client.errors import Refused
from allotment.client.image_login import keep
from allotment.model.data_use import DataUse
from allotment.model.engines import Ability, EngineSetup, EngineType, asked_by, asks_of
from allotment.model.environment import Environment
from allotment.model.errors import Code, Rejected
from allotment.model.image_names import BadReference, Reference, parse
from allotment.model.quantity import NOTHING
from allotment.model.spec import JobSpec
from allotment.service.ports import ImageWish
from allotment.wiring.engines import abilities_of

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch", Reference("docker.io", "library/torch", "latest")),
        ("me/torch:2", Reference("docker.io", "me/torch", "2")),
        ("h.org:5000/a/b:2", Reference("h.org:5000", "a/b", "2")),
        ("localhost/a", Reference("localhost", "a", "latest")),
        (f"h.org/a@{DIGEST}", Reference("h.org", "a", "", DIGEST)),
        (f"h.org/a:1@{DIGEST}", Reference("h.org", "a", "1", DIGEST)),
    ],
)
def test_names_are_read_as_docker_reads_them(text: str, found: Reference) -> None:
    assert parse(text) == found
    assert parse(str(found)) == found


@pytest.mark.parametrize(
    "text", ["", "A/b", "h.org/a b", "h.org/../x", "h.org/a:", "a@sha256:1", "x" * 600, "-/a"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BadReference):
        parse(text)


@pytest.mark.parametrize(
    ("host", "near"),
    [("127.0.0.1:5000", True), ("localhost", True), ("[::1]:80", True), ("10.0.0.1:80", False),
     ("127.0.0.1.evil.org", False), ("localhost.evil.org:80", False)],
)  # fmt: skip
def test_only_this_machine_does_without_tls(host: str, near: bool) -> None:
    reference = parse(f"{host}/a")
    assert reference.is_near is near
    assert reference.base.startswith("http://" if near else "https://")


def wish(home: Path, text: object) -> ImageWish:
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker/config.json").write_text(json.dumps(text))
    return ImageWish("h.org/a", "ann", str(home))


def found(user: ImageWish, registry: str, *, is_needed: bool = False) -> str:
    return basic_of(user, registry, LoginHelpers("/nowhere"), is_needed=is_needed)


def test_a_password_is_found_as_docker_writes_it(tmp_path: Path) -> None:
    both = {"auths": {"h.org": {"auth": "YTpi"}, "i.org": {"username": "a", "password": "b"}}}
    user = wish(tmp_path, both)
    assert found(user, "h.org") == found(user, "i.org") == "YTpi"
    assert found(user, "j.org") == ""
    hub = {"auths": {"https://index.docker.io/v1/": {"auth": "YTpi"}}}
    assert found(wish(tmp_path, hub), "docker.io") == "YTpi"


@pytest.mark.parametrize("odd", [
    [], 7, {"auths": []}, {"auths": {"h.org": {"auth": "?"}}},
    {"auths": {"h.org": {"auth": "é"}}},
])  # fmt: skip
def test_a_file_that_says_nothing_gives_no_password(tmp_path: Path, odd: object) -> None:
    assert found(wish(tmp_path, odd), "h.org") == ""


def test_a_file_nested_without_end_is_named(tmp_path: Path) -> None:
    user = wish(tmp_path, {})
    (tmp_path / ".docker/config.json").write_text("[" * 200_000)
    with pytest.raises(ImageTrouble, match="is not JSON"):
        found(user, "h.org")


def test_a_service_that_is_not_roots_runs_no_helper_of_others(tmp_path: Path) -> None:
    user = wish(tmp_path, {"credHelpers": {"h.org": "pass"}})
    with pytest.raises(ImageTrouble, match=r"docker-credential-pass.* is not run") as told:
        found(user, "h.org")
    assert "allot image login h.org --user NAME" in told.value.advice
    keep(tmp_path, "h.org", "ann", "secret")  # which that does
    assert base64.b64decode(found(user, "h.org")) == b"ann:secret"


def test_a_login_is_kept_under_the_name_that_images_begin_with(tmp_path: Path) -> None:
    keep(tmp_path, "https://h.org:5000/", "ann", "secret")
    user = ImageWish("h.org:5000/a", "ann", str(tmp_path))
    assert base64.b64decode(found(user, "h.org:5000")) == b"ann:secret"


@pytest.mark.parametrize("odd", ["", "h.org/vision", "https://index.docker.io/v1/", "h .org"])
def test_a_login_that_no_image_would_use_is_refused(tmp_path: Path, odd: str) -> None:
    with pytest.raises(Refused, match="is not the name of a registry"):
        keep(tmp_path, odd, "ann", "secret")
    assert not (tmp_path / ".docker").exists()


def test_a_helper_without_a_name_is_none_as_in_docker(tmp_path: Path) -> None:
    user = wish(tmp_path, {"credsStore": "pass", "credHelpers": {"h.org": ""}})
    assert found(user, "h.org", is_needed=True) == ""
    assert found(user, "i.org") == ""
    with pytest.raises(ImageTrouble, match="docker-credential-pass"):
        found(user, "i.org", is_needed=True)


def test_an_identity_token_counts_before_the_name_beside_it(tmp_path: Path) -> None:
    kept = {"auth": base64.b64encode(b"0:").decode(), "identitytoken": "t"}
    user = wish(tmp_path, {"auths": {"h.org": kept}})
    assert base64.b64decode(found(user, "h.org")) == b"<token>:t"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"layers": [{"digest": "../x"}]}',
        '{"layers": 1}',
        "\xff",
        '{"x":' + "[" * 10**5,
    ],
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ImageTrouble):
        manifest_from(text.encode("latin-1"), "x")


def test_a_layer_packed_otherwise_is_refused_by_name() -> None:
    layers = [{"digest": DIGEST, "size": 1, "mediaType": "application/x.tar+gzip+encrypted"}]
    manifest = manifest_from(json.dumps({"layers": layers}).encode(), "x")
    config = {"architecture": architecture(), "os": "linux", "rootfs": {"diff_ids": [DIGEST]}}
    with pytest.raises(ImageTrouble, match="encrypted"):
        config_from(json.dumps(config).encode(), manifest, "x")


@pytest.mark.parametrize("path", ["/a" * 151, "/" + "a" * 1000, "a" * 1001])
def test_where_an_image_begins_is_a_path_that_can_be(path: str) -> None:
    manifest = manifest_from(json.dumps({"layers": [{"digest": DIGEST}]}).encode(), "x")

    def config(path: str) -> bytes:
        about = {"architecture": architecture(), "rootfs": {"diff_ids": [DIGEST]}}
        return json.dumps({**about, "config": {"WorkingDir": path}}).encode()

    with pytest.raises(ImageTrouble, match="WorkingDir"):
        config_from(config(path), manifest, "x")
    assert config_from(config("/a" * 150), manifest, "x")


@pytest.mark.parametrize(
    "wishes",
    [
        {"Env": ["A=" + "x" * (128 << 10)]},
        {"Env": ["A=" + "x" * (70 << 10)], "Cmd": ["x" * (70 << 10)]},
    ],
)
def test_an_image_that_wants_more_than_a_program_gets_is_refused(
    wishes: dict[str, object],
) -> None:
    manifest = manifest_from(json.dumps({"layers": [{"digest": DIGEST}]}).encode(), "x")
    config = {
        "architecture": architecture(),
        "rootfs": {"diff_ids": [DIGEST]},
        "config": wishes,
    }
    with pytest.raises(ImageTrouble, match="more than 128 KiB"):
        config_from(json.dumps(config).encode(), manifest, "x")


def test_of_what_a_registry_says_only_what_is_used_is_kept() -> None:
    """It may say 8 MiB of it twice, about each of many images."""
    config = {"architecture": architecture(), "rootfs": {"diff_ids": [DIGEST]}, "author": "x"}
    body = json.dumps(config).encode()
    layer = {"digest": DIGEST, "size": 7, "mediaType": "x" * 10_000}
    about = {"layers": [layer], "config": {"digest": DIGEST, "mediaType": "x" * 10_000}}

    class Told(Registry):
        def manifest(self, digest: str) -> bytes:
            return json.dumps(about).encode()

        def small_blob(self, digest: str) -> bytes:
            return body

    found = look(Told(parse("h.org/a")), DIGEST)
    assert found.download == 7
    assert len(msgspec.json.encode(found)) < 1000


def test_engines_that_cannot_run_images_or_mount_data_say_so() -> None:
    bare = JobSpec("j", "t", ())
    with_data = msgspec.structs.replace(bare, data=(DataUse("t", "words", 1, "/data/w"),))
    with_image = msgspec.structs.replace(bare, image="busybox")
    assert asks_of(NOTHING, asked_by(with_image)) == (Ability.IMAGES,)
    assert asks_of(NOTHING, asked_by(with_data)) == (Ability.FOLDERS,)
    version = msgspec.structs.replace(with_data.data[0], digest="0" * 64)
    with_version = msgspec.structs.replace(bare, data=(version,))
    assert asks_of(NOTHING, asked_by(with_version)) == (Ability.DATASETS,)
    with_packages = msgspec.structs.replace(bare, environment=Environment(key="k"))
    assert asks_of(NOTHING, asked_by(with_packages)) == (Ability.ENVIRONMENTS,)
    leaves = msgspec.structs.replace(bare, save="results")
    assert asks_of(NOTHING, asked_by(leaves)) == (Ability.VERSIONS,)
    assert asks_of(NOTHING, asked_by(bare)) == ()
    assert Ability.IMAGES not in SlurmBackend.abilities
    for engine in (SlurmBackend, KubernetesBackend):
        assert Ability.DATASETS not in engine.abilities
    setup = EngineSetup("", EngineType.PILOT, "main", folder="/disk")
    assert abilities_of(setup, Path("/s")) >= {Ability.DATASETS, Ability.VERSIONS}


def test_an_engine_without_a_store_refuses_images(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    with pytest.raises(Rejected, match="No engine here") as refused:
        asyncio.run(backend.images().resolve(ImageWish("x", "ann", "/")))
    assert refused.value.code is Code.NOT_SUPPORTED


def test_a_kernel_that_lets_only_root_mount_images_is_named() -> None:
    assert "Linux 5.10.0-28-amd64 does not let users" in too_old("5.10.0-28-amd64")
    newer = ("5.12.0", "5.15.0-91-generic", "6.1", "odd")
    assert [*map(too_old, newer)] == [""] * 4
