"""What people type who know another tool: which of our verbs they want."""

from collections.abc import Container, Sequence

from allotment.cli.output import Failed

HABITS: dict[str, str] = {
    "kill": "cancel", "delete": "cancel", "rm": "cancel", "remove": "cancel",
    "abort": "cancel", "terminate": "cancel", "scancel": "cancel",
    "attach": "logs -f", "tail": "logs -f", "follow": "logs -f", "log": "logs",
    "output": "outputs", "top": "ps", "list": "ps", "ls": "ps", "jobs": "ps", "status": "ps",
    "squeue": "ps", "queue": "queues", "describe": "show", "info": "show", "inspect": "show",
    "get": "show", "sbatch": "submit", "create": "submit", "apply": "submit", "srun": "run",
    "ssh": "exec", "shell": "exec", "pause": "suspend", "continue": "resume",
    "sinfo": "nodes", "start": "up", "serve": "up", "daemon": "up", "stop": "down",
    "shutdown": "down", "history": "events", "users": "tenants", "explain": "why",
    "estimate": "eta", "check": "doctor", "simulate": "sim", "version": "--version",
}  # fmt: skip
"""What is typed, and what of ours does it."""

ALSO = {
    "status": "One job: allot show JOB    The service: allot doctor",
    "stop": "A job: allot cancel JOB",
    "start": "A job: allot run -- COMMAND",
    "queue": "The jobs in it: allot ps",
}
"""What else may be meant."""


OF_A_JOB = frozenset({
    "cancel", "logs", "logs -f", "outputs", "show", "exec", "suspend", "resume", "why", "eta",
})  # fmt: skip


class NoVerb(Failed):
    """There is no such verb: a wrong call."""

    exit_code = 2


def habit(words: Sequence[str], verbs: Container[str]) -> NoVerb | None:
    """Return the advice for a verb of another tool; None for anything else."""
    verb = words[0] if words else ""
    if verb not in HABITS or verb in verbs:
        return None
    ours = HABITS[verb]
    rest = words[1:] or (["JOB"] if ours in OF_A_JOB else [])
    hint = f"Try: {' '.join(['allot', ours, *rest])}"
    return NoVerb(
        f"There is no verb {verb}.", f"{hint}    {ALSO[verb]}" if verb in ALSO else hint
    )
