"""Rules for images: what they allow, and what is written that looks like it and is not."""

import msgspec
import pytest

from allotment.model.errors import BadInput
from allotment.model.image_rules import ImageRule, may_name, needs_digest
from allotment.wire.config import config_to_wire, read_config
from allotment.wire.image_rules import read_image_rule

ONE, OTHER = (f"sha256:{digit * 64}" for digit in "1f")


def allowed(rule: str, image: str) -> bool:
    return may_name((read_image_rule(rule),), image)


@pytest.mark.parametrize(
    ("rule", "image"),
    [
        ("registry.example.org/*", "registry.example.org/a"),
        ("registry.example.org/*", "registry.example.org/a/b/c:2.9"),
        ("registry.example.org/*", "Registry.Example.ORG/a"),
        ("Registry.example.org/*", "registry.example.org/a"),
        ("registry.example.org/vision/*", f"registry.example.org/vision/torch:2.9@{ONE}"),
        ("registry.example.org/vision/torch", "registry.example.org/vision/torch"),
        ("registry.example.org:5000/a", "registry.example.org:5000/a:1"),
        ("localhost/a", "localhost/a"),
        ("docker.io/debian", "debian:12"),
        ("docker.io/library/debian", "debian"),
        ("docker.io/library/debian", "docker.io/debian"),
        ("docker.io/*", "pytorch/pytorch"),
        (f"*@{ONE}", f"anywhere.example.org/a:1@{ONE}"),
        (f"registry.example.org/a@{ONE}", f"registry.example.org/a@{ONE}"),
        (f"registry.example.org/vision/*@{ONE}", f"registry.example.org/vision/a@{ONE}"),
    ],
)
def test_what_a_rule_allows(rule: str, image: str) -> None:
    assert allowed(rule, image)


@pytest.mark.parametrize(
    ("rule", "image"),
    [
        ("registry.example.org/*", "registry.example.org.evil.com/a"),
        ("registry.example.org/*", "evil.com/registry.example.org/a"),
        ("registry.example.org/*", "registry.example.org:443/a"),
        ("registry.example.org/*", "registry.example.org./a"),
        ("registry.example.org/*", "user@registry.example.org/a"),
        ("registry.example.org/*", "registry.example.org/../a"),
        ("registry.example.org/*", "registry.example.org//a"),
        ("registry.example.org/*", "a"),
        ("registry.example.org/vision/*", "registry.example.org/visions/torch"),
        ("registry.example.org/vision/*", "registry.example.org/vision"),
        ("registry.example.org/vision/*", "registry.example.org/vision/../nlp/a"),
        ("registry.example.org/vision/torch", "registry.example.org/vision/torch/evil"),
        ("registry.example.org/vision/torch", "registry.example.org/vision/torch2"),
        ("docker.io/library/debian", "evil/debian"),
        ("docker.io/library/debian", "LIBRARY/debian"),
        ("docker.io/*", "docker.io.evil.com/library/debian"),
        ("localhost/*", "localhost:5000/a"),
        (f"*@{ONE}", f"a@{OTHER}"),
        (f"*@{ONE}", f"a:1@{OTHER}"),
        (f"*@{ONE}", "a:1"),
        (f"*@{OTHER}", f"a@{OTHER.upper()}"),
        (f"registry.example.org/a@{ONE}", f"evil.com/a@{ONE}"),
        (f"registry.example.org/a@{ONE}", "registry.example.org/a:1"),
    ],
)
def test_what_looks_like_it_and_is_not(rule: str, image: str) -> None:
    assert not allowed(rule, image)


def test_without_rules_all_is_allowed_and_of_several_one_is_enough() -> None:
    assert may_name((), "evil.com/a")
    rules = tuple(map(read_image_rule, ("docker.io/debian", f"*@{ONE}")))
    assert may_name(rules, "debian")
    assert may_name(rules, f"evil.com/a@{ONE}")
    assert not may_name(rules, "evil.com/a")


def test_whoever_names_no_digest_is_told_where_one_would_do() -> None:
    rules = (read_image_rule(f"registry.example.org/*@{ONE}"),)
    assert needs_digest(rules, "registry.example.org/a:1")
    assert not needs_digest(rules, f"registry.example.org/a@{OTHER}")
    assert not needs_digest(rules, "evil.com/a")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("*", "* would allow every image"),
        ("debian", "'debian' names no registry (of Docker Hub write docker.io/library/debian"),
        ("registry.example.org", "names no registry"),
        ("registry:443", "names no registry"),
        ("vision/torch", "names no registry (of Docker Hub write docker.io/vision/torch"),
        ("*/torch", "names no registry"),
        ("*.example.org/torch", "has a * that is not the whole of its last part"),
        ("registry.example.org/vis*", "has a * that is not the whole of its last part"),
        ("registry.example.org/*/torch", "has a * that is not the whole of its last part"),
        ("registry.example.org/a:2.9", "has a tag, which says nothing of the bytes"),
        ("registry.example.org/*:2.9", "has a * that is not the whole of its last part"),
        (f"registry.example.org/a:1@{ONE}", "has a tag, which says nothing of the bytes"),
        ("registry.example.org./a", "has a registry that cannot be one"),
        ("registry.example.org:70000/a", "has a registry that cannot be one"),
        ("registry.example.org/Vision/*", "is not the name of an image"),
        ("registry.example.org//*", "is not the name of an image"),
        ("registry.example.org/", "is not the name of an image"),
        ("registry.example.org/a@sha256:12", "has an @ that no digest follows"),
        (f"registry.example.org/a@{OTHER.upper()}", "has an @ that no digest follows"),
        ("https://registry.example.org/a", "has a registry that cannot be one"),
        ("", "must not be empty"),
    ],
)
def test_a_rule_that_says_nothing_is_refused_with_its_line(rule: str, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(f'["{rule}"]')
    assert "line 2: tenants.a.images[0]: " in str(refused.value)
    assert why in str(refused.value)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(BadInput, match="images: must have at least one entry"):
        read("[]")


def test_rules_are_written_as_they_are_read() -> None:
    rules = read(f'[Registry.example.org/vision/*, docker.io/debian, "*@{ONE}"]')
    assert rules == (
        ImageRule("registry.example.org/vision/*"),
        ImageRule("docker.io/library/debian"),
        ImageRule("*", ONE),
    )


def read(images: str) -> tuple[ImageRule, ...]:
    """Read a configuration with rules; writing and reading it again gives the same."""
    head = "nodes: [{name: n1, cpu: 1, memory: 1GiB}]\n"
    text = f"{head}tenants: {{a: {{images: {images}}}}}\n"
    config, _ = read_config(text.encode(), source="c.yaml", machine=None)
    written = msgspec.json.encode(config_to_wire(config))
    assert read_config(written, source="again", machine=None)[0] == config
    return config.tenants[0].images
