"""Which jobs a selector chooses, and who may do what to them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.spec import Dependency, JobSpec
from allotment.service.listing import Which
from allotment.service.selector import Selector, Verb, Wish
from allotment.service.service import Service
from tests.integration.service.test_service import a_script, running, until

ADA, BOB, ROOT = Actor("ada", 1001), Actor("bob", 1002), Actor("root", 0)


def held(name: str, tenant: str = "vision", **changes: Any) -> c.SubmitJob:
    spec: JobSpec = a_script("fake forever", tenant=tenant, name=name, **changes)
    return c.SubmitJob(spec, held=True)


async def some_jobs(service: Service) -> None:
    """1 ada train-a, 2 ada eval (nlp), 3 bob train-b, 4-6 ada sweep.0-2."""
    await service.submit(held("train-a"), ADA)
    await service.submit(held("eval", "nlp"), ADA)
    await service.submit(held("train-b"), BOB)
    await service.submit(msgspec.structs.replace(held("sweep"), copies=3), ADA)


@pytest.mark.parametrize(
    ("selector", "jobs"),
    [
        (Selector(mine=True), [1, 2, 4, 5, 6]),
        (Selector(name="train-*"), [1]),
        (Selector(name="train-*", all=True), [1, 3]),
        (Selector(name="train-", all=True), []),
        (Selector(user="bob"), [3]),
        (Selector(tenant="nlp"), [2]),
        (Selector(name="sweep"), [4, 5, 6]),
        (Selector(name="sweep.[12]"), [5, 6]),
        (Selector(states=(JobState.QUEUED,)), []),
        (Selector(refs=("train-b",), mine=True), []),
        (Selector(refs=("sweep", "1"), states=(JobState.HELD,)), [1, 4, 5, 6]),
        (Selector(refs=("train-b", "4[1]")), [3, 5]),
        (Selector(ids=((JobId(2), JobId(3)), (JobId(6), JobId(6)))), [2, 3, 6]),
    ],
)
def test_what_a_selector_chooses(tmp_path: Path, selector: Selector, jobs: list[int]) -> None:
    async def chosen() -> list[int]:
        async with running(tmp_path) as service:
            await some_jobs(service)
            return [each.id for each in service.selecting.chosen(selector, ADA)]

    assert asyncio.run(chosen()) == jobs


def steered(folder: Path, verb: Verb, selector: Selector, actor: Actor) -> tuple[str, str]:
    """Do it among `some_jobs`; give the states of all, and the refusal if there was one."""

    folder.mkdir(exist_ok=True)

    async def done() -> tuple[str, str]:
        async with running(folder) as service:
            await some_jobs(service)
            said = ""
            try:
                told = await service.steering.steer(verb, Wish(selector), actor)
                said = " ".join(no.code for no in told.refused)
            except Rejected as no:
                said = no.message
            jobs = service.state.jobs
            return "".join(jobs[JobId(job)].state.value[0] for job in range(1, 7)), said

    return asyncio.run(done())


def test_nothing_is_done_where_some_of_many_jobs_are_others(tmp_path: Path) -> None:
    states, said = steered(tmp_path, Verb.CANCEL, Selector(name="train-*", all=True), BOB)
    assert states == "hhhhhh"
    assert said == ("1 of these 2 jobs belong to others (ada); you are bob. Nothing was done.")


def test_another_users_array_cannot_be_cancelled_by_name(tmp_path: Path) -> None:
    states, said = steered(tmp_path, Verb.CANCEL, Selector(refs=("sweep",)), BOB)
    assert states == "hhhhhh"
    assert "3 of these 3 jobs belong to others (ada)" in said
    states, said = steered(tmp_path / "2", Verb.CANCEL, Selector(refs=("train-a",)), BOB)
    assert (states, said) == ("hhhhhh", "forbidden")


def test_an_administrator_acts_on_all_only_if_it_is_said(tmp_path: Path) -> None:
    states, _ = steered(tmp_path, Verb.CANCEL, Selector(all=True, name="train-*"), ROOT)
    assert states == "chchhh"
    states, said = steered(tmp_path / "2", Verb.CANCEL, Selector(name="train-*"), ROOT)
    assert (states, said) == ("hhhhhh", "No job fits these options.")


def test_nobody_makes_anothers_jobs_run_as_himself(tmp_path: Path) -> None:
    async def again() -> None:
        async with running(tmp_path) as service:
            await some_jobs(service)
            await service.steering.steer(Verb.CANCEL, Wish(Selector(refs=("sweep",))), ADA)
            jobs = Selector(refs=("sweep",), states=(JobState.CANCELLED,))
            with pytest.raises(Rejected, match="again it would run as you, root") as no:
                await service.steering.steer(Verb.RETRY, Wish(jobs), ROOT)
            assert no.value.code is Code.FORBIDDEN
            made = await service.steering.steer(Verb.RETRY, Wish(jobs), ADA)
            assert made.made == ((JobId(7), JobId(9)),)

    asyncio.run(again())


def test_parameters_are_shown_to_those_who_may_look_inside(tmp_path: Path) -> None:
    async def shown() -> None:
        async with running(tmp_path) as service:
            grid = (("lr", ("0.1", "0.2")),)
            wish = msgspec.structs.replace(held("sweep"), copies=2, grid=grid)
            made = await service.submit(wish, ADA)
            for actor, params in ((ADA, {"lr": "0.2"}), (ROOT, {"lr": "0.2"}), (BOB, {})):
                rows, _ = await service.listing.page(Which(Selector()), actor)
                for row in (rows[0], service.job(made.ids[1], actor).row):
                    assert row.array is not None
                    assert row.array.params == params

    asyncio.run(shown())


def test_dependencies_by_name_and_on_arrays_become_ids(tmp_path: Path) -> None:
    async def depends(*needs: Dependency, actor: Actor = ADA) -> tuple[Dependency, ...]:
        async with running(tmp_path) as service:
            if not service.state.jobs:
                await some_jobs(service)
                await service.submit(held("eval"), ADA)  # job 7
            made = await service.submit(held("after", depends_on=needs), actor)
            return service.state.jobs[made.id].spec.depends_on

    def on(*jobs: int, group: int = 0) -> tuple[Dependency, ...]:
        return tuple(Dependency(JobId(job), any_of=group) for job in jobs)

    def ref(text: str, group: int = 0) -> Dependency:
        return Dependency(JobId(0), any_of=group, ref=text)

    async def story() -> None:
        assert await depends(ref("eval")) == on(7)
        assert await depends(ref("sweep")) == await depends(ref("4")) == on(4, 5, 6)
        assert await depends(ref("4[1-2]"), ref("1")) == on(5, 6, 1)
        assert await depends(Dependency(JobId(4))) == on(4)
        assert await depends(ref("train-a", 1), ref("4[0]", 1)) == on(1, 4, group=1)
        with pytest.raises(Rejected, match="you have no job of that name"):
            await depends(ref("train-b"))
        assert await depends(ref("train-b"), actor=BOB) == on(3)

    asyncio.run(story())


def test_of_a_choice_nothing_is_left_once_one_is_met(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path) as service:
            good = await service.submit(c.SubmitJob(a_script("fake 0", name="good")), ROOT)
            await until(lambda: service.state.jobs[good.id].state is JobState.SUCCEEDED)
            waits = await service.submit(held("waits"), ADA)
            needs = tuple(Dependency(job, any_of=1) for job in (good.id, waits.id))
            made = await service.submit(held("after", depends_on=needs), ADA)
            assert service.state.jobs[made.id].spec.depends_on == ()

    asyncio.run(story())
