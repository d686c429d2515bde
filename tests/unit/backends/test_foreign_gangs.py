"""Pods that wait, and the gangs that they make: whole, once, and taken back when they go."""

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.backends.kubernetes.foreign import Claim
from allotment.backends.kubernetes.gangs import Gangs, Word
from allotment.backends.kubernetes.group_size import size_in
from allotment.backends.kubernetes.offer import offer_of
from allotment.model.quantity import Resources
from allotment.model.spec import GiveWay


def a_claim(number: int, gang: str = "ns/g", size: int = 2, **more: object) -> Claim:
    base = Claim(
        name=f"ns/p-{number}", uid=f"u{number}", made=f"{number:03}", gang=gang, size=size,
        tenant="lab", queue="nlp", need=Resources(gpu_milli=1000),
    )  # fmt: skip
    return msgspec.structs.replace(base, **more)


@dataclass
class Book:
    """Gangs, and what was handed over of them."""

    gangs: Gangs = field(default_factory=Gangs)

    def put(self, *claims: Claim) -> list[list[str]]:
        for claim in claims:
            self.gangs.put(claim)
        return self.made()

    def made(self) -> list[list[str]]:
        made, self.words = self.gangs.take()
        self.keys = [gang.key for gang in made]
        self.whole = made
        return [[claim.uid for claim in gang.claims] for gang in made]

    def reasons(self) -> set[str]:
        return {word.reason for _, word in self.words}

    words: list[tuple[Claim, Word]] = field(default_factory=list)


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_gang_is_offered_once_and_whole(book: Book) -> None:
    assert book.put(a_claim(2)) == []
    assert book.reasons() == {"GangIncomplete"}
    assert book.put(a_claim(1)) == [["u1", "u2"]]
    assert book.gangs.is_offered(book.keys[0])
    assert book.put(a_claim(1)) == []


def test_a_pod_that_goes_takes_the_offer_back_and_another_completes_it(book: Book) -> None:
    book.put(a_claim(1), a_claim(2))
    (key,) = book.keys
    book.gangs.drop("u1")
    assert not book.gangs.is_offered(key)
    assert book.made() == []
    assert book.put(a_claim(3)) == [["u2", "u3"]]
    assert book.keys != [key]


def test_pods_that_disagree_are_named_and_none_is_placed(book: Book) -> None:
    assert book.put(a_claim(1), a_claim(2, size=3)) == []
    assert book.reasons() == {"GangDisagrees"}
    assert "ns/p-1 claims 2 pods for lab/nlp" in book.words[0][1].message
    assert "ns/p-2 3 pods" in book.words[0][1].message
    book.gangs.drop("u2")
    assert book.put(a_claim(3)) == [["u1", "u3"]]


def test_one_too_many_waits_until_the_others_have_gone(book: Book) -> None:
    assert book.put(a_claim(1), a_claim(2), a_claim(3)) == [["u1", "u2"]]
    assert book.put(a_claim(4)) == []
    assert book.reasons() == {"GangComplete"}
    for uid in ("u1", "u2"):
        book.gangs.hold(uid)
        book.gangs.drop(uid)  # it is on its node
    assert book.made() == []
    for uid in ("u1", "u2"):
        book.gangs.let_go(uid)
    assert book.made() == [["u3", "u4"]]


def test_more_than_the_least_is_placed_with_the_gang_or_beside_it_while_it_runs(
    book: Book,
) -> None:
    assert book.put(*(a_claim(n, may_exceed=True) for n in (1, 2, 3))) == [["u1", "u2", "u3"]]
    for uid in ("u1", "u2", "u3"):
        book.gangs.hold(uid)
        book.gangs.drop(uid)
    assert book.put(a_claim(4, may_exceed=True)) == [["u4"]]
    book.gangs.stop("u1")
    assert book.put(a_claim(5, may_exceed=True)) == []  # it belongs to the gang that comes next
    for uid in ("u1", "u2", "u3"):
        book.gangs.let_go(uid)


def test_an_offer_whose_job_is_over_is_not_made_again_of_the_same_pods(book: Book) -> None:
    book.put(a_claim(1), a_claim(2))
    book.gangs.end(book.keys[0])
    assert book.made() == []
    book.gangs.drop("u1")
    assert book.put(a_claim(3)) == [["u2", "u3"]]


def test_a_pod_that_asks_for_something_else_is_another_offer(book: Book) -> None:
    book.put(a_claim(1, gang="", size=1))
    (first,) = book.keys
    assert book.put(a_claim(1, gang="", size=1, priority=7)) == [["u1"]]
    assert not book.gangs.is_offered(first)
    book.gangs.hold("u1")  # from now on its job has a place: what it says is too late
    (second,) = book.keys
    assert book.put(a_claim(1, gang="", size=1, priority=8)) == []
    assert book.gangs.is_offered(second)


def test_a_size_that_an_object_says_is_waited_for(book: Book) -> None:
    asks = {"size": 0, "source": "/podgroups/g"}
    assert book.put(a_claim(1, **asks), a_claim(2, **asks)) == []
    assert book.gangs.unknown_sources() == ["/podgroups/g"]
    book.gangs.learn("/podgroups/g", "there is no podgroups g")
    assert book.made() == []
    assert book.words[0][1] == Word("GangUnknown", "there is no podgroups g")
    book.gangs.learn("/podgroups/g", 2)
    assert book.made() == [["u1", "u2"]]
    assert book.gangs.unknown_sources() == []
    book.gangs.drop("u1")
    book.gangs.drop("u2")
    book.put(a_claim(3, **asks))
    assert book.gangs.unknown_sources() == ["/podgroups/g"]  # it may have been made anew


def test_what_is_not_settled_yet_is_not_gone(book: Book) -> None:
    claims = [a_claim(n, size=0, source="/podgroups/g") for n in (1, 2)]
    book.put(*claims)
    book.gangs.learn("/podgroups/g", 2)
    book.made()
    (key,) = book.keys
    again = Gangs()  # as after a start
    assert again.is_offered(key) is False
    for claim in claims:
        again.put(claim)
    assert again.is_offered(key) is None
    again.take()
    assert again.is_offered(key) is None  # its object has not been asked
    again.learn("/podgroups/g", 2)
    assert again.is_offered(key) is None
    again.take()
    assert again.is_offered(key) is True
    again.drop("u1")
    again.take()
    assert again.is_offered(key) is False


def test_what_an_object_says_of_a_size() -> None:
    assert size_in(b'{"spec": {"minMember": 3}}', "", "podgroups", "g") == 3
    assert "no podgroups g" in str(size_in(None, "", "podgroups", "g"))
    assert "no minMember" in str(size_in(b'{"spec": {}}', "", "podgroups", "g"))
    assert "not understood" in str(
        size_in(b'{"spec": {"minMember": "x"}}', "", "podgroups", "g")
    )
    parts = b'{"spec": {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 4}}}]}}'
    assert size_in(parts, "w", "workloads", "x") == 4
    assert "no pod group v" in str(size_in(parts, "v", "workloads", "x"))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 4}}}, 4),
        ({"schedulingPolicy": {"basic": {}}}, 1),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "podgroups g has no minCount"),
        (
            {
                "schedulingPolicy": {"gang": {"minCount": 4}},
                "schedulingConstraints": {"topology": [{"key": "rack"}]},
            },
            "podgroups g requires nodes that are alike in rack, which Allotment does not keep",
        ),
        (
            {"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "all"},
            "podgroups g is a part of a composite pod group, and Allotment places none",
        ),
    ],
)
def test_what_a_pod_group_of_the_workload_api_says(
    spec: dict[str, object], said: int | str
) -> None:
    text = msgspec.json.encode({"apiVersion": "scheduling.k8s.io/v1beta1", "spec": spec})
    assert size_in(text, "", "podgroups", "g") == said


def test_a_job_set_says_how_many_pods_it_has_at_once() -> None:
    job = {"parallelism": 4, "completions": 2}
    parts: list[dict[str, object]] = [
        {"name": "leader", "template": {"spec": {}}},
        {"name": "workers", "replicas": 3, "template": {"spec": job}},
    ]

    def size(**more: object) -> object:
        said = {"spec": {"replicatedJobs": parts} | more}
        return size_in(msgspec.json.encode(said), "", "jobsets", "g")

    assert size() == 7
    assert size(startupPolicy={"startupPolicyOrder": "AnyOrder"}) == 7
    assert size(startupPolicy={"startupPolicyOrder": "InOrder"}) == 1
    parts[1]["dependsOn"] = [{"name": "leader", "status": "Ready"}]
    assert size() == 1
    assert size(replicatedJobs=[]) == "jobsets g has no pods"
    assert "not understood" in str(size(replicatedJobs=[{"replicas": "x"}]))
    assert "there is no jobsets g" in str(size_in(None, "", "jobsets", "g"))


def test_an_enormous_size_of_an_object_is_refused(book: Book) -> None:
    book.put(a_claim(1, size=0, source="/g"))
    book.gangs.learn("/g", 10**9)
    assert book.made() == []
    assert "the most" in book.words[0][1].message


def test_a_gang_is_a_job_with_a_role_for_each_need(book: Book) -> None:
    large = Resources(gpu_milli=4000)
    book.put(a_claim(1), a_claim(2, need=large, size=2))
    offer = offer_of(book.whole[0], "k8s", {})
    spec = offer.spec
    assert (spec.name, spec.tenant, spec.queue, spec.engine) == ("ns/g", "lab", "nlp", "k8s")
    assert [(r.count, r.resources.gpu_milli) for r in spec.roles] == [(1, 1000), (1, 4000)]
    assert [each.uid for each in spec.offered] == ["u1", "u2"]
    assert spec.on_eviction is GiveWay.CANCEL
    assert offer.owner.user == "kubernetes/ns"
    assert offer.owner.uid is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "hold", "let_go", "end", "stop"]), st.integers(1, 6)
    ),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_no_pod_is_in_two_offers_and_every_gang_is_whole(
    steps: list[tuple[str, int]], may_exceed: bool
) -> None:
    gangs, offers = Gangs(), dict[str, list[str]]()
    for what, number in steps:
        match what:
            case "put":
                gangs.put(a_claim(number, may_exceed=may_exceed))
            case "end":
                for key in [key for key in offers if gangs.is_offered(key)][:1]:
                    gangs.end(key)
            case _:
                getattr(gangs, what)(f"u{number}")
        made, _ = gangs.take()
        for gang in made:
            assert len(gang.claims) >= 2 or may_exceed
            offers[gang.key] = [claim.uid for claim in gang.claims]
        there = [uid for key, uids in offers.items() if gangs.is_offered(key) for uid in uids]
        assert len(there) == len(set(there))
        assert set(there) <= set(gangs.waiting())
