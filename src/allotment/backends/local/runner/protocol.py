"""Requests on the launcher's socket: JSON, one object a line, answered in order.

    {"op": "hello"}                       → its version, pid, means of isolation, live tasks
    {"op": "launch", "request": {…}}      → launched true; or false with the present status
    {"op": "list"}                        → the keys of the tasks that may still run
    {"op": "retire"}                      → it stops listening, and ends with its last task

Every answer has `ok`; where it is false, `error` says why. `hello` and `retire` never
change, so that any version can take over from any other.
"""

import json
import os
from collections.abc import Callable
from typing import Final, cast

from allotment.backends.local.runner import claim, layout, procfs, record
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.schema import PROTOCOL, BadRequest, Request, request_from

LONGEST_LINE_BYTES: Final = 8 << 20

Answer = dict[str, object]


class Server:
    """Answers requests. `launch` starts a supervisor for a request whose claim it gets."""

    def __init__(self, host: Host, launch: Callable[[Request, claim.Claim], None]) -> None:
        self._host = host
        self._launch = launch
        self.is_retiring = False

    def answer(self, line: bytes) -> bytes:
        """Answer one line. Never raises for anything that can be said in it."""
        try:
            found = self._dispatch(json.loads(line))
        except (ValueError, BadRequest) as error:
            found = {"ok": False, "error": f"bad request: {error}"}
        except OSError as error:
            found = {"ok": False, "error": f"the state folder fails: {error}"}
        return json.dumps(found).encode() + b"\n"

    def _dispatch(self, message: object) -> Answer:
        if not isinstance(message, dict):
            raise BadRequest("an object is expected")
        fields = cast("dict[str, object]", message)
        match fields.get("op"):
            case "hello":
                return self._hello()
            case "launch":
                return self._launch_once(request_from(fields.get("request")))
            case "list":
                return {"ok": True, "keys": live_keys()}
            case "retire":
                self.is_retiring = True
                return {"ok": True}
            case other:
                raise BadRequest(f"unknown op {other!r}")

    def _give_up(self, request: Request, held: claim.Claim, error: OSError) -> None:
        """End a task whose supervisor could not be forked: its claim cannot be undone."""
        status = record.new_status(request, self._host.boot_id)
        status["phase"] = "ended"
        status["platform_error"] = f"cannot start a supervisor: {error.strerror}"
        status["ended_ms"] = record.now_ms()
        record.write_final(status, held.lock)
        os.unlink(layout.live_file(request["key"]))
        record.Reporter(request["key"]).send()

    def _hello(self) -> Answer:
        groups = self._host.hierarchy
        return {
            "ok": True,
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "start_time": procfs.start_time("self"),
            "namespaces": self._host.namespaces,
            "cgroup": groups.version,
            "controllers": sorted(groups.bases),
            "missing": {**self._host.missing, **groups.missing},
            "scratch_root": self._host.scratch_root,
            "tasks": len(live_keys()),
        }

    def _launch_once(self, request: Request) -> Answer:
        key = request["key"]
        if self.is_retiring:
            return {"ok": False, "error": "this launcher is retiring"}
        held = claim.take(key)
        if held is None:
            return {"ok": True, "key": key, "launched": False, "status": present_status(key)}
        try:
            self._launch(request, held)
        except OSError as error:
            self._give_up(request, held, error)
        finally:
            held.close()
        return {"ok": True, "key": key, "launched": True}


def live_keys() -> list[str]:
    """List the tasks that may still run."""
    return sorted(os.listdir(layout.LIVE))


def present_status(key: str) -> object:
    """Return a task's status as it stands in its file; None before the first."""
    try:
        with open(f"{layout.task_dir(key)}/{layout.STATUS}", "rb") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None
