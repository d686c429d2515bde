"""`allot logs`: the output of a job's tasks."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from allotment.cli.attach import Attached, detachable
from allotment.cli.logprint import LogPrinter
from allotment.cli.options import AsJson, Job, Raw, State, Task
from allotment.cli.output import Failed, talk
from allotment.client import Client, LogLine
from allotment.service.selector import Chosen
from allotment.service.views import JobView


def logs(  # noqa: PLR0913 - one argument an option
    job: Job,
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Follow the output until the job has finished."),
    ] = False,
    task: Task = "",
    attempt: Annotated[
        int, typer.Option("--attempt", "-a", min=0, help="Of this attempt; 0 is the newest.")
    ] = 0,
    stream: Annotated[
        str, typer.Option("--stream", metavar="NAME", help="Only stdout, or only stderr.")
    ] = "both",
    tail: Annotated[
        str,
        typer.Option(
            "--tail", metavar="SIZE", help="Only the end of each: 4KiB.", show_default=False
        ),
    ] = "",
    raw: Raw = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Print the output of a job; with several tasks, each line begins with its task's name.

    The stderr of tasks goes to stderr. With -f the output is followed through retries and
    restarts of the service. Ctrl-C does not stop the job. On a terminal, escape codes other
    than colours are shown as text (\\x1b), unless you give --raw; elsewhere the output is
    unchanged.

    For an array, or a part of it, print the output of its jobs one after the other.

    Examples:
      allot logs last
      allot logs '8[failed]' --tail 4KiB
      allot logs -f 12 --task worker.1
      allot logs 12 --attempt 1 --stream stderr --tail 16KiB
    """
    if stream not in ("both", "stdout", "stderr"):
        raise Failed(f"There is no stream {stream}.", "Streams: stdout, stderr, both.")
    size = _bytes(tail) if tail else None
    with Client(state=state) as client:
        chosen = client.choose(job)
        if chosen.count > 1:

            def read(one: JobView) -> Iterator[LogLine]:
                return client.logs(
                    one.id, task=task, attempt=attempt or None, stream=stream, follow=follow,
                    tail=size,
                )  # fmt: skip

            for one in _jobs(client, chosen):
                if one.attempts or follow:
                    _print(one, read(one), as_json=as_json)
            return
        found = client.job(chosen.ids[0][0])
        if follow and not (task or attempt or size is not None or stream != "both"):
            with detachable(found.id):
                Attached(client, found, talk, as_json=as_json, raw=raw).until_the_end(
                    max(0, len(found.attempts) - 1)
                )
            return
        printer = LogPrinter(_names(found, task, attempt), as_json=as_json, raw=raw)
        with detachable(found.id):
            for piece in client.logs(
                found.id, task=task, attempt=attempt or None, stream=stream, follow=follow,
                tail=size,
            ):  # fmt: skip
                printer.write(piece)
            printer.finish()


def _jobs(client: Client, chosen: Chosen) -> Iterator[JobView]:
    for first, last in chosen.ids:
        for job in range(first, last + 1):
            yield client.job(job)


def _print(job: JobView, pieces: Iterator[LogLine], *, as_json: bool) -> None:
    """Print the output of one job of an array, each line with its place in that."""
    place = _place(job)
    printer = LogPrinter((place,), as_json=as_json)
    with detachable(job.id):
        for piece in pieces:
            printer.write(msgspec.structs.replace(piece, task=place))
    printer.finish()


def _place(job: JobView) -> str:
    array = job.row.array
    return f"{array.id}[{array.index}]" if array else str(job.id)


def _bytes(text: str) -> int:
    from allotment.wire.amiss import Amiss  # noqa: PLC0415 - rarely needed
    from allotment.wire.amounts import read_size  # noqa: PLC0415

    try:
        return read_size(int(text) if text.isdecimal() else text)
    except Amiss as error:
        raise Failed(f"--tail: {error.message}", "Write it like 4KiB or 1MiB.") from error


def _names(job: JobView, task: str, attempt: int) -> tuple[str, ...]:
    """List the tasks whose names lines begin with: none where there is only one."""
    if task or not job.attempts:
        return ()
    at = attempt - 1 if 0 < attempt <= len(job.attempts) else -1
    names = tuple(found.name for found in job.attempts[at].tasks)
    return names if len(names) > 1 else ()
