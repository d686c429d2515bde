"""`allot note`: a word for people, kept with a job."""

from typing import Annotated

import typer

from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, Job, State
from allotment.cli.output import say_json, talk
from allotment.client import Client

Text = Annotated[str, typer.Argument(metavar="TEXT", help="The note; '' removes it.")]


def note(job: Job, text: Text, state: State = "", as_json: AsJson = False) -> None:
    """Attach a note to a job, in place of an earlier note; `allot show` prints it.

    Every user who sees the job sees the note. It has no effect on the job.

    Examples:
      allot note 12 'diverged at step 4000: see W&B'
      allot note last ''
    """
    with Client(state=state) as client:
        noted = client.note(job, text)
    if as_json:
        say_json(as_object(noted))
    else:
        talk(f"job {noted.id} ({noted.row.name}): {'noted' if text else 'note taken away'}")
