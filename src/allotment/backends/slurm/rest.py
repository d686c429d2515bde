"""Slurm over its REST API, slurmrestd. Thin: documents are made and read elsewhere.

What it has no words for stays with the commands: gangs of ranks, a drain on 22.05, the
switches.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from allotment.backends.http import Answer, Http
from allotment.backends.slurm import client
from allotment.backends.slurm.accounts_read import Accounted
from allotment.backends.slurm.client import AWAY, OVER
from allotment.backends.slurm.reservations import SlurmReservation
from allotment.backends.slurm.rest_shapes import (
    NEW,
    Flaw,
    accounts_in,
    counts_gpus_in,
    flaws_in,
    lines_of_nodes,
    newest_in,
    number_in,
    owner_in,
    partition_in,
    reservations_in,
    rows_in,
    submission_of,
)
from allotment.backends.slurm.settings import Partition
from allotment.backends.slurm.status import Rows
from allotment.backends.slurm.token import NAME, SlurmLogin, name_of
from allotment.backends.slurm.told import SlurmNode, nodes_from
from allotment.backends.slurm.usage import NodeLine
from allotment.model.engines import RestSetup
from allotment.model.errors import BackendError, EngineAway

UNSPECIFIED, AUTHENTICATION, NOTHING_CAME = -1, 1007, 5005
UNCLEAR = (UNSPECIFIED, AUTHENTICATION, NOTHING_CAME)
"""Codes of Slurm behind which may be a token that is not accepted. 22.05 has no better word."""
NO_JOB = 2_000_000_000
"""A number that no job has: Slurm's own end at 67,043,328."""
NO_SUCH_JOB = 2017
NOT_READ = 9001
"""What slurmrestd adds where it cannot read a document; Slurm itself was not asked then."""
NOT_TAKEN = (400, 413)
"""HTTP's words for that, where it does not say more."""
MOST_WORDS = 500
NO_COMMAND = "cannot be run"


class NotAccepted(EngineAway):
    """The token is not accepted: it is asked again, as it may be renewed."""


class Rest:
    """The Slurm behind one slurmrestd."""

    def __init__(self, setup: RestSetup) -> None:
        self._setup = setup
        self._login = SlurmLogin(setup)
        self._http = Http(setup.server, self._login)
        self._version = 0
        """The newest that slurmrestd offers; 0 before it was asked."""
        self._known: set[int] = set()
        """Users whom slurmctld is seen to know."""

    def close(self) -> None:
        self._http.close()

    # ── jobs ────────────────────────────────────────────────────────────────────────────

    async def jobs(self, name: str = "") -> Rows:
        return rows_in(await self._ask("GET", "jobs"), name)

    async def submit(
        self, options: Sequence[str], script: str, env: Mapping[str, str] = {}
    ) -> str:
        if env:  # A gang of ranks, whose hosts file REST has no word for.
            return await self._submit_ranks(options, script, env)
        version = await self.version()
        text = Path(script).read_text()
        document, uid = submission_of(options, text, version)
        body = msgspec.json.encode(document)
        said = await self._ask("POST", "job/submit", body, self._as(uid), once=True)
        try:
            number = number_in(said)
        except (
            BackendError
        ) as error:  # It may have been a yes: so it is looked for by its name.
            raise EngineAway(str(error)) from error
        await self._see_whose(number, os.geteuid() if uid is None else uid)
        return number

    async def _submit_ranks(
        self, options: Sequence[str], script: str, env: Mapping[str, str]
    ) -> str:
        try:
            return await client.submit(options, script, env)
        except BackendError as error:
            if NO_COMMAND not in str(error):
                raise
            raise BackendError(
                f"ranks of MPI are submitted by `sbatch`, also where `rest` is set: {error}. "
                "Install Slurm's commands for the service, with munge and slurm.conf"
            ) from error

    async def _see_whose(self, job: str, uid: int) -> None:
        """Refuse the first job of a user whom slurmctld does not know: it is nobody's there.

        Raises BackendError.
        """
        if uid in self._known:
            return
        owner = owner_in(await self._ask("GET", f"job/{quote(job, safe='')}"))
        if owner == uid:
            self._known.add(uid)
            return
        await self.cancel(job)
        raise BackendError(
            f"slurmctld does not know user {uid} ({name_of(uid)} here), and took the job for "
            f"user {owner}: give its machine the same users, by number, as this one has"
        )

    def _as(self, uid: int | None) -> Mapping[str, str]:
        """Return the header that says for whom it is asked. Raises BackendError."""
        uid = os.geteuid() if uid is None else uid
        if self._setup.token_file or self._setup.token_command:
            return {NAME: self._login.user_of(uid)}
        path = Path(self._setup.server.removeprefix("unix:"))
        try:
            owner = path.stat().st_uid
        except OSError as error:
            raise EngineAway(f"slurmrestd: {path}: {(error.strerror or '').lower()}") from None
        if owner != uid:
            raise BackendError(
                f"slurmrestd at {path} runs jobs as {name_of(owner)}, and this one is "
                f"{name_of(uid)}'s: give it a token of root's or SlurmUser's (`rest: {{token: "
                "…}`), with which it may act for others"
            )
        return {}

    async def cancel(self, job: str) -> None:
        try:
            await self._ask("DELETE", f"job/{quote(job, safe='')}")
        except EngineAway:
            raise
        except BackendError as error:
            if not any(word in str(error).lower() for word in OVER):
                raise

    # ── nodes ───────────────────────────────────────────────────────────────────────────

    async def nodes(self) -> tuple[SlurmNode, ...]:
        return self._nodes_in(await self._ask("GET", "nodes"))

    def _nodes_in(self, said: bytes) -> tuple[SlurmNode, ...]:
        return nodes_from(said.decode(errors="replace"), "slurmrestd")

    async def lines(self, partition: str) -> Sequence[NodeLine]:
        return lines_of_nodes(await self.nodes(), partition)

    async def state_of(self, node: str) -> tuple[str, str]:
        said = await self._ask("GET", f"node/{quote(node, safe='')}")
        nodes = self._nodes_in(said)
        if not nodes:
            raise BackendError(f"slurmrestd says nothing of node {node}")
        found = nodes[0]
        return " ".join(found.words).lower(), found.reason.strip()

    async def partition(self, name: str) -> Partition | None:
        return partition_in(await self._ask("GET", "partitions"), name)

    async def reservations(self) -> tuple[SlurmReservation, ...]:
        return reservations_in(await self._ask("GET", "reservations"))

    async def counts_gpus(self) -> bool:
        try:
            return counts_gpus_in(await self._ask("GET", "tres", of="slurmdb"))
        except EngineAway:
            raise
        except BackendError:
            return False  # It has no accounts, or was started without what tells of them.

    async def accounted(self, jobs: Sequence[str]) -> Mapping[str, Accounted]:
        found: dict[str, Accounted] = {}
        for job in jobs:
            try:
                said = await self._ask("GET", f"job/{quote(job, safe='')}", of="slurmdb")
            except EngineAway:
                raise
            except BackendError:
                continue  # It is not known there, or not yet.
            found |= accounts_in(said)
        return found

    async def switches(self) -> str:
        try:
            return await client.switches()
        except BackendError as error:
            if NO_COMMAND in str(error):
                return ""
            raise

    async def drain(self, node: str, reason: str) -> None:
        if await self.version() < NEW:
            await client.drain(node, reason)
            return
        await self._change(node, {"state": ["DRAIN"], "reason": client.plain(reason)})

    async def resume(self, node: str) -> None:
        if await self.version() < NEW:
            await client.resume(node)
            return
        await self._change(node, {"state": ["RESUME"]})

    async def _change(self, node: str, document: object) -> None:
        await self._ask("POST", f"node/{quote(node, safe='')}", msgspec.json.encode(document))

    # ── asking ──────────────────────────────────────────────────────────────────────────

    async def version(self) -> int:
        """Return the version that is spoken. Raises BackendError."""
        if not self._version:
            answer = await self._http.ask("GET", "/openapi/v3")
            if answer.status != 200:
                raise self._unknown(answer)
            self._version = newest_in(answer.body)
        return self._version

    def _unknown(self, answer: Answer) -> EngineAway:
        if answer.status == 401:
            return NotAccepted("slurmrestd wants a token: name one under `rest: {token: …}`")
        return EngineAway(f"slurmrestd: HTTP {answer.status}")

    async def _ask(
        self,
        method: str,
        what: str,
        body: bytes = b"",
        more: Mapping[str, str] = {},
        *,
        once: bool = False,
        of: str = "slurm",
    ) -> bytes:
        """Ask; a token that is not accepted is found anew, and shown once more.

        But not to what is to be asked `once`. `of` is slurmdb for the accounts. Raises
        EngineAway, BackendError.
        """
        shown = await self._login.token()
        try:
            return await self._told(method, what, body, more, once=once, of=of)
        except NotAccepted:
            self._login.forget()
            if once or await self._login.token() == shown:
                raise
            return await self._told(method, what, body, more, once=once, of=of)

    async def _told(
        self,
        method: str,
        what: str,
        body: bytes,
        more: Mapping[str, str],
        *,
        once: bool,
        of: str,
    ) -> bytes:
        answer = await self._send(method, what, body, more, once=once, of=of)
        if answer.status == 404 and of != "slurm":
            raise BackendError("slurmrestd does not show Slurm's accounts")
        flaws = flaws_in(answer.body)
        if answer.status == 404 and not flaws:
            self._version = 0  # It is another slurmrestd now.
        if answer.status < 300 and not any(flaw.code or flaw.error for flaw in flaws):
            return answer.body
        if not flaws and answer.status in NOT_TAKEN:
            said = " ".join(answer.body.decode(errors="replace").split())
            raise _unread(said or f"HTTP {answer.status}")
        if not flaws:
            raise self._unknown(answer)
        raise await self._trouble(flaws, more)

    async def _send(
        self,
        method: str,
        what: str,
        body: bytes,
        more: Mapping[str, str],
        *,
        once: bool,
        of: str = "slurm",
    ) -> Answer:
        path = f"/{of}/v0.0.{await self.version()}/{what}"
        return await self._http.ask(method, path, body, more=more, once=once)

    async def _trouble(self, flaws: Sequence[Flaw], more: Mapping[str, str]) -> BackendError:
        """Return what is wrong, as clearly as it can be found out."""
        if any(flaw.code == NOT_READ for flaw in flaws):
            said = [flaw.description or flaw.error for flaw in flaws if flaw.code != NOT_READ]
            return _unread("; ".join(said) or "it does not say why")
        first = max(flaws, key=lambda flaw: bool(flaw.code and flaw.code < 9000))
        text = f"slurmrestd: {first.error or first.description or 'no reason given'}"[
            :MOST_WORDS
        ]
        if first.code not in UNCLEAR:
            is_away = any(word in text.lower() for word in AWAY)
            return EngineAway(text) if is_away else BackendError(text)
        as_self = await self._probe({})
        if as_self in UNCLEAR:
            return NotAccepted(
                f"slurmctld does not accept {self._login.what()} that slurmrestd was shown"
            )
        if more and as_self == NO_SUCH_JOB and await self._probe(more) in UNCLEAR:
            return BackendError(
                f"slurmctld does not let {self._login.user} act for user {more[NAME]}: the "
                "token must be root's or SlurmUser's"
            )
        if as_self == NO_SUCH_JOB:
            return EngineAway(text)
        return EngineAway("slurmctld does not answer slurmrestd")

    async def _probe(self, more: Mapping[str, str]) -> int:
        """Return what Slurm says to the cancelling of a job that cannot be.

        Of 22.05 only such a question says whether slurmctld answers, or refuses the token.
        """
        answer = await self._send("DELETE", f"job/{NO_JOB}", b"", more, once=False)
        if answer.status < 300:
            return NO_SUCH_JOB
        return next((flaw.code for flaw in flaws_in(answer.body) if flaw.code), 0)


def _unread(why: str) -> BackendError:
    return BackendError(f"slurmrestd cannot read what it is asked: {why}"[:MOST_WORDS])
