"""What exit codes, signals, broken limits and our own stops mean. Data, and nothing else.

`scripts/exit_code_docs.py` makes docs/guide/exit-codes.md of it. A `code` is stable: programs
rely on it. Codes from 128 on are looked up as signals, as shells report them.
"""

from collections.abc import Mapping
from typing import Final

from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.reasons import StopCause
from allotment.model.spec import REQUEUE_CODE

USER, PLATFORM, HARDWARE = Owner.USER, Owner.PLATFORM, Owner.HARDWARE
NEVER, AGAIN, UNKNOWN = RetryClass.NEVER, RetryClass.PLATFORM, RetryClass.UNKNOWN

CHECKPOINT_STOP: Final = 85
"""Our convention: a program that was told to stop saved a checkpoint, and then ended."""

SHELL_SIGNAL_BASE: Final = 128
"""A shell reports a child ended by signal n as exit code 128 + n."""

SEE_LOG: Final = "Read the end of its output: allot logs JOB."

# ── what its limits and its machine say, whatever its exit code ─────────────────────────

OUT_OF_MEMORY: Final = Diagnosis(
    "out_of_memory",
    "It used more memory than its limit, and was ended.",
    USER,
    NEVER,
    "Ask for more in resources.memory, or use less: smaller batches, fewer loader workers.",
)
DISK_LIMIT: Final = Diagnosis(
    "disk_limit",
    "It wrote more scratch data than its limit.",
    USER,
    NEVER,
    "Ask for more in resources.disk, or write large files to the output folder.",
)
PIDS_LIMIT: Final = Diagnosis(
    "pids_limit",
    "It started more processes and threads than its limit.",
    USER,
    NEVER,
    "Start fewer loader workers and threads (OMP_NUM_THREADS), or look for an endless fork.",
)
PLATFORM_ERROR: Final = Diagnosis(
    "platform_error",
    "The task could not be run properly; the program itself is not to blame.",
    PLATFORM,
    AGAIN,
    "It is tried again by itself. An administrator looks at `allot doctor` on that node.",
)
FOLDER_AWAY: Final = Diagnosis(
    "folder_away",
    "A folder that an administrator registered as a dataset cannot be opened on its node.",
    PLATFORM,
    AGAIN,
    "It is tried again by itself, on any node. An administrator mounts the folder there, or "
    "drains the node until then: `allot drain NODE`.",
)
LOST: Final = Diagnosis(
    "lost",
    "The task was lost together with its supervisor or its machine; its end is not known.",
    PLATFORM,
    AGAIN,
    "It is tried again by itself, from its last checkpoint if it has one.",
)
UNSEEN: Final = Diagnosis(
    "unseen",
    "The task ended, and neither an exit code nor a signal was recorded.",
    PLATFORM,
    UNKNOWN,
    SEE_LOG,
)

# ── when we told it to stop ─────────────────────────────────────────────────────────────

BY_STOP: Final[Mapping[StopCause, Diagnosis]] = {
    StopCause.CANCELLED: Diagnosis(
        "cancelled", "It was cancelled.", USER, NEVER, "Submit it again with `allot clone JOB`."
    ),
    StopCause.EVICTED: Diagnosis(
        "evicted",
        "It was evicted: a job of another tenant, or of its own, had a right to its place.",
        PLATFORM,
        AGAIN,
        "It starts again by itself when there is room, from its last checkpoint.",
    ),
    StopCause.RUN_TIME: Diagnosis(
        "run_time",
        "It ran for as long as its max_run_time allows.",
        USER,
        NEVER,
        "Allow more: allot clone JOB --set max_run_time=….",
    ),
    StopCause.START_TIME: Diagnosis(
        "start_time",
        "Starting it took too long.",
        PLATFORM,
        AGAIN,
        "`allot events JOB` shows how long each phase of starting took.",
    ),
    StopCause.ROLE_FAILED: Diagnosis(
        "role_failed",
        "Another task of its job failed, so the whole gang was stopped.",
        USER,
        UNKNOWN,
        "Look at the task that failed first: allot show JOB.",
    ),
    StopCause.ROLES_SUCCEEDED: Diagnosis(
        "roles_succeeded",
        "Its job was complete, so the tasks that were left were stopped.",
        USER,
        NEVER,
        "Nothing to do.",
    ),
    StopCause.NODE_LOST: Diagnosis(
        "node_lost",
        "A node of its gang was lost, so the whole gang was stopped.",
        PLATFORM,
        AGAIN,
        "It is tried again by itself, from its last checkpoint if it has one.",
    ),
}

# ── exit codes that tell more than any log ──────────────────────────────────────────────

PERMANENT: Final[Mapping[int, Diagnosis]] = {
    126: Diagnosis(
        "not_executable",
        "The command was found, but cannot be executed.",
        USER,
        NEVER,
        "chmod +x the file, check its first line (#!) and that it was built for this machine.",
    ),
    127: Diagnosis(
        "command_not_found",
        "The command, or a library it needs, was not found.",
        USER,
        NEVER,
        "Check its spelling, PATH, and that it is installed where the task runs.",
    ),
}

# ── the others: looked at when the log tells nothing ────────────────────────────────────

BY_CODE: Final[Mapping[int, Diagnosis]] = {
    1: Diagnosis("error", "The program reported an error.", USER, UNKNOWN, SEE_LOG),
    2: Diagnosis(
        "usage_error",
        "The program did not accept its arguments, or the shell its command line.",
        USER,
        UNKNOWN,
        "Check the command: allot show JOB has it as it was run.",
    ),
    64: Diagnosis(
        "usage_error", "The program was used wrongly (EX_USAGE).", USER, UNKNOWN, SEE_LOG
    ),
    65: Diagnosis("bad_data", "Its input data was wrong (EX_DATAERR).", USER, UNKNOWN, SEE_LOG),
    66: Diagnosis("no_input", "An input was missing (EX_NOINPUT).", USER, UNKNOWN, SEE_LOG),
    69: Diagnosis(
        "service_unavailable",
        "A service that it needs did not answer (EX_UNAVAILABLE).",
        USER,
        UNKNOWN,
        SEE_LOG,
    ),
    70: Diagnosis(
        "internal_error", "A fault in the program (EX_SOFTWARE).", USER, UNKNOWN, SEE_LOG
    ),
    71: Diagnosis(
        "system_error",
        "The operating system refused something (EX_OSERR).",
        PLATFORM,
        UNKNOWN,
        SEE_LOG,
    ),
    73: Diagnosis(
        "cannot_create",
        "An output file could not be made (EX_CANTCREAT).",
        USER,
        UNKNOWN,
        SEE_LOG,
    ),
    74: Diagnosis(
        "io_error", "Reading or writing failed (EX_IOERR).", PLATFORM, UNKNOWN, SEE_LOG
    ),
    75: Diagnosis(
        "temporary_failure",
        "The program says that another try may succeed (EX_TEMPFAIL).",
        USER,
        UNKNOWN,
        "Allow it some tries: retry in the job file.",
    ),
    77: Diagnosis(
        "no_permission",
        "The program lacks a permission (EX_NOPERM).",
        USER,
        UNKNOWN,
        SEE_LOG,
    ),
    78: Diagnosis(
        "bad_configuration", "Its configuration is wrong (EX_CONFIG).", USER, UNKNOWN, SEE_LOG
    ),
    CHECKPOINT_STOP: Diagnosis(
        "checkpoint_unasked",
        "The program says that it stopped at a checkpoint, but it got no signal to stop.",
        USER,
        UNKNOWN,
        "Exit with 85 only after the warning signal; end with 0 when the work is done.",
    ),
    120: Diagnosis(
        "output_lost",
        "Python could not write the last of its output.",
        PLATFORM,
        UNKNOWN,
        "The disk under the logs may be full: see `allot doctor`.",
    ),
    REQUEUE_CODE: Diagnosis(
        "requeue_asked",
        "Its batch script asked to be queued again.",
        USER,
        UNKNOWN,
        "Nothing to do: after `scontrol requeue` the script starts again.",
    ),
    124: Diagnosis(
        "own_time_limit",
        "A `timeout` in its own command ended it.",
        USER,
        UNKNOWN,
        "Give `timeout` more time, or use max_run_time in the job file.",
    ),
    125: Diagnosis(
        "wrapper_failed",
        "A wrapper (`timeout`, `env`, a container command) failed before the program ran.",
        USER,
        UNKNOWN,
        SEE_LOG,
    ),
    128: Diagnosis(
        "bad_exit_code", "The program ended with an invalid exit code.", USER, UNKNOWN, SEE_LOG
    ),
    255: Diagnosis(
        "exit_255",
        "The program ended with -1, or an ssh in it lost its connection.",
        USER,
        UNKNOWN,
        SEE_LOG,
    ),
}
"""Codes without an entry read as 1 does."""
