"""How datasets are named, and who may use them."""

import pytest

from allotment.model.data_use import DataReference, reference_of
from allotment.model.datasets import (
    DataKind,
    Dataset,
    Grant,
    Grantee,
    may_read,
    may_write,
    owns,
)
from allotment.model.ids import Actor
from allotment.model.tenancy import Tenant
from tests.support.builders import gpus

ANN, BEN, CAY = Actor("ann", 1), Actor("ben", 2), Actor("cay", 3, ("speakers",))
TENANTS = (
    Tenant("vision", gpus(1), users=("ann",)),
    Tenant("nlp", gpus(1), users=("ben",)),
    Tenant("speech", gpus(1), groups=("speakers",)),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("words", DataReference("words")),
        ("vision/words", DataReference("words", "vision")),
        ("vision/words@3", DataReference("words", "vision", 3)),
        ("a.b-c_d@12", DataReference("a.b-c_d", "", 12)),
    ],
)
def test_names_are_read_and_written_alike(text: str, found: DataReference) -> None:
    assert reference_of(text) == found
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    ["", ".x", "../x", "a/../b", "a/b/c", "/a", "a/", "a@", "a@0", "a@-1", "a@1@2", "a b",
     "a\n", "x" * 64, "a@" + "9" * 10, "ä"],
)  # fmt: skip
def test_what_is_no_name_is_none(text: str) -> None:
    assert reference_of(text) is None


def a_dataset(*grants: Grant) -> Dataset:
    return Dataset("vision", "words", "1", DataKind.MANAGED, "dan", uid=9, grants=grants)


def test_a_tenant_reads_and_the_owner_writes() -> None:
    words = a_dataset()
    assert owns(words, Actor("dan", 9))
    assert not owns(words, Actor("dan"))  # The name alone is nobody's proof.
    assert may_write(words, Actor("dan", 9), TENANTS)
    assert may_read(words, ANN, TENANTS)
    assert not may_write(words, ANN, TENANTS)
    assert not may_read(words, BEN, TENANTS)
    everybodys = (Tenant("vision", gpus(1)),)
    assert may_read(words, BEN, everybodys)


def test_grants_are_to_users_and_to_members_of_tenants() -> None:
    words = a_dataset(Grant(Grantee.USER, "ben"), Grant(Grantee.TENANT, "speech", write=True))
    assert may_read(words, BEN, TENANTS)
    assert not may_write(words, BEN, TENANTS)
    assert may_write(words, CAY, TENANTS)
    assert not may_read(words, Actor("speech", 7), TENANTS)
