"""A word for people that is kept with a job."""

import pytest

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


def test_a_note_takes_the_place_of_the_one_before_and_the_same_is_no_news() -> None:
    world = World(a_config(a_tenant("vision", 4)))
    job = world.submit(a_job())
    for text, news in (("first try", 1), ("first try", 0), ("two\nlines", 1), ("", 1)):
        records = world.do(c.NoteJob(job, text))
        assert [record.event for record in records] == [e.JobNoted(job, text)] * news
        assert world.job(job).note == text


@pytest.mark.parametrize(
    ("text", "accepted"),
    [("x" * 1000, True), ("x" * 1001, False), ("a\x1b[31mb", False), ("\n", True)],
)
def test_a_note_is_short_and_plain(text: str, accepted: bool) -> None:
    world = World(a_config(a_tenant("vision", 4)))
    job = world.submit(a_job())
    if accepted:
        assert world.do(c.NoteJob(job, text))
        return
    with pytest.raises(Rejected, match="at most 1,000 characters") as refused:
        world.do(c.NoteJob(job, text))
    assert refused.value.code is Code.BAD_REQUEST
    assert world.job(job).note == ""
