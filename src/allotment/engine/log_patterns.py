"""What programs, shells and networks say when they fail. Data, as log_patterns_gpu.

Three kinds. STRONG: hardly ever in the output of a program that did not fail of it.
RAISED: the exception a Python program ended in. WEAK: also seen in programs that went on,
so it counts only in that exception, or where there is none. In each the first match wins.
"""

import re
from typing import Final

from allotment.engine.log_patterns_builds import BUILDS, STEP_FAILED
from allotment.engine.log_patterns_gpu import FAULTS
from allotment.engine.log_patterns_network import NETWORK
from allotment.engine.log_scan import LogPattern
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass

USER, PLATFORM = Owner.USER, Owner.PLATFORM
NEVER, UNKNOWN = RetryClass.NEVER, RetryClass.UNKNOWN

_RANK = r"^(?:\[[^\]\n]{1,20}\]:? ?)?"
"""A launcher may put [rank0]: before each line."""


def _line(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.MULTILINE)


MEMORY_REFUSED: Final = Diagnosis(
    "memory_refused",
    "It asked for memory and did not get it.",
    USER,
    UNKNOWN,
    "Ask for more in resources.memory, or use less: smaller batches, fewer loader workers.",
)
PACKAGE: Final = "Install it where the task runs, or name an image that has it."

STRONG: Final = (
    LogPattern(
        Diagnosis(
            "environment_unfit",
            "Its image cannot run the Python of its environment.",
            USER,
            NEVER,
            "Take an image with glibc 2.28 or newer, or one that has the packages.",
        ),
        ("allot: this image cannot run",),
        _line(r"^allot: this image cannot run the Python of the environment"),
        "allot: this image cannot run the Python of the environment: it needs glibc 2.28",
    ),
    LogPattern(
        Diagnosis(
            "environment_unseen",
            "Its node does not see its environment.",
            PLATFORM,
            UNKNOWN,
            "Tell an administrator: the node has to mount the folder of the service.",
        ),
        ("allot: this node does not see",),
        _line(r"^allot: this node does not see the environment"),
        "allot: this node does not see the environment of the job",
    ),
    *BUILDS,
    *FAULTS,
    LogPattern(
        Diagnosis(
            "shm_full",
            "Shared memory (/dev/shm) is too small for its loader workers.",
            USER,
            UNKNOWN,
            "Use fewer loader workers, or torch's file_system sharing strategy.",
        ),
        ("shared memory (shm)", "torch_", "signal: Bus error"),
        re.compile(
            r"insufficient shared memory \(shm\)|unable to (?:write to|open) .{0,20}/torch_\d"
            r"|unable to write to file </torch|worker .{1,40} is killed by signal: Bus error"
        ),
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is "
        "possible that dataloader's workers are out of shared memory.",
    ),
    LogPattern(
        Diagnosis(
            "loader_worker_died",
            "A data loader worker died; most often it was killed for want of memory.",
            USER,
            UNKNOWN,
            "Use fewer loader workers, or ask for more in resources.memory.",
        ),
        ("DataLoader worker",),
        re.compile(r"DataLoader worker \(pid.{1,60}(?:killed by signal|exited unexpectedly)"),
        "RuntimeError: DataLoader worker (pid(s) 5119, 5120) exited unexpectedly",
    ),
    LogPattern(
        Diagnosis(
            "disk_full",
            "A file system is full.",
            PLATFORM,
            UNKNOWN,
            "See which path it wrote to; keep fewer checkpoints, or ask for resources.disk.",
        ),
        ("No space left on device", "ENOSPC", "Errno 28"),
        re.compile(r"No space left on device|ENOSPC|\[Errno 28\]"),
        "OSError: [Errno 28] No space left on device: '/scratch/ckpt/step-4000.pt'",
    ),
    LogPattern(
        Diagnosis(
            "disk_quota",
            "The user's quota on a file system is used up.",
            USER,
            UNKNOWN,
            "Remove what is not needed there, or write elsewhere.",
        ),
        ("isk quota exceeded", "EDQUOT", "Errno 122"),
        re.compile(r"[Dd]isk quota exceeded|EDQUOT|\[Errno 122\]"),
        "cp: error writing '/home/ada/model.bin': Disk quota exceeded",
    ),
    LogPattern(
        MEMORY_REFUSED,
        (
            "std::bad_alloc",
            "annot allocate memory",
            "can't allocate memory",
            "Unable to allocate",
        ),
        re.compile(
            r"std::bad_alloc|[Cc]annot allocate memory|DefaultCPUAllocator: can't allocate"
            r"|Unable to allocate [\d.]{1,12} [KMGTPE]iB for an array"
        ),
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ),
    LogPattern(
        Diagnosis(
            "too_many_files",
            "It has too many files open.",
            USER,
            UNKNOWN,
            "Close what is not needed, or raise `ulimit -n` in its command.",
        ),
        ("oo many open files", "EMFILE"),
        re.compile(r"[Tt]oo many open files|EMFILE"),
        "OSError: [Errno 24] Too many open files: '/data/train/000131.jpg'",
    ),
    LogPattern(
        Diagnosis(
            "fork_refused",
            "It could not start another process or thread.",
            USER,
            UNKNOWN,
            "Start fewer loader workers and threads (OMP_NUM_THREADS).",
        ),
        ("fork", "start new thread", "pthread_create"),
        re.compile(
            r"fork: (?:retry: )?Resource temporarily unavailable|can't start new thread"
            r"|pthread_create.{0,40}failed|fork: Cannot|BlockingIOError.{0,40}fork"
        ),
        "bash: fork: retry: Resource temporarily unavailable",
    ),
    LogPattern(
        Diagnosis(
            "syntax_error",
            "A Python file of the program cannot be read as Python.",
            USER,
            NEVER,
            "Correct the file, and check that it fits this version of Python.",
        ),
        ("SyntaxError: ", "IndentationError: ", "TabError: "),
        _line(_RANK + r"(?:SyntaxError|IndentationError|TabError): "),
        "SyntaxError: '(' was never closed",
    ),
    LogPattern(
        Diagnosis(
            "program_missing",
            "The program file or module that it should run is not there.",
            USER,
            NEVER,
            "Check the path in its command, and that code_dir holds the file.",
        ),
        ("can't open file", "No module named"),
        re.compile(r"python[\d.]{0,6}: (?:can't open file|No module named)"),
        "python3: can't open file '/code/trian.py': [Errno 2] No such file or directory",
    ),
    LogPattern(
        Diagnosis(
            "image_not_fetched",
            "Apptainer could not fetch its image, or ask the registry for it.",
            PLATFORM,
            UNKNOWN,
            "See whether the node reaches the registry, and whether the cache has room "
            "(APPTAINER_CACHEDIR).",
        ),
        ("Unable to handle docker://",),
        _line(r"FATAL: {1,8}Unable to handle docker://\S{1,600} uri: "),
        "FATAL:   Unable to handle docker://registry/torch@sha256:1b2c uri: failed to get "
        "checksum: pinging container registry: connection refused",
    ),
    LogPattern(
        Diagnosis("missing_library", "A shared library is missing.", USER, NEVER, PACKAGE),
        ("error while loading shared libraries",),
        re.compile(r"error while loading shared libraries"),
        "./train: error while loading shared libraries: libcudart.so.12: cannot open shared "
        "object file: No such file or directory",
    ),
    LogPattern(
        Diagnosis(
            "wrong_architecture",
            "The program was built for another kind of machine.",
            USER,
            NEVER,
            "Set arch in the job file, or build it for this machine.",
        ),
        ("xec format error",),
        re.compile(r"[Ee]xec format error"),
        "/bin/sh: 1: ./train: Exec format error",
    ),
    LogPattern(
        Diagnosis(
            "segmentation_fault",
            "It touched memory that is not its own.",
            USER,
            UNKNOWN,
            "Set PYTHONFAULTHANDLER=1 to see where; look for a mismatch of compiled packages.",
        ),
        ("egmentation fault", "SIGSEGV"),
        re.compile(r"[Ss]egmentation fault|Signals\.SIGSEGV|\(SIGSEGV\)"),
        "Fatal Python error: Segmentation fault",
    ),
    STEP_FAILED,
)

RAISED: Final = (
    LogPattern(
        Diagnosis(
            "import_error", "A Python package is missing or broken.", USER, NEVER, PACKAGE
        ),
        ("ModuleNotFoundError", "ImportError"),
        re.compile(r"(?:[\w.]{0,80}\.)?(?:ModuleNotFound|Import)Error\b"),
        "ModuleNotFoundError: No module named 'deepspeed'",
    ),
    LogPattern(
        Diagnosis(
            "file_not_found",
            "It looks for a file that is not there.",
            USER,
            UNKNOWN,
            "Check the path; the task's own folders are in ALLOT_DATA_DIR, ALLOT_CODE_DIR and "
            "ALLOT_OUTPUT_DIR.",
        ),
        ("FileNotFoundError", "NotADirectoryError"),
        re.compile(r"(?:[\w.]{0,80}\.)?(?:FileNotFound|NotADirectory)Error\b"),
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'",
    ),
    LogPattern(
        Diagnosis(
            "permission_denied",
            "It may not read or write a path.",
            USER,
            UNKNOWN,
            "Data and code are read-only for tasks: write to ALLOT_OUTPUT_DIR.",
        ),
        ("PermissionError", "Read-only file system"),
        re.compile(r"(?:[\w.]{0,80}\.)?PermissionError\b|OSError: \[Errno 30\] Read-only"),
        "PermissionError: [Errno 13] Permission denied: '/data/imagenet/cache.db'",
    ),
    LogPattern(
        MEMORY_REFUSED,
        ("MemoryError",),
        re.compile(r"(?:[\w.]{0,80}\.)?_?(?:Array)?MemoryError\b"),
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array",
    ),
    LogPattern(
        Diagnosis(
            "interrupted",
            "Something interrupted it, as Ctrl-C does.",
            USER,
            UNKNOWN,
            "See who or what sent it SIGINT: a launcher does when another process failed.",
        ),
        ("KeyboardInterrupt",),
        re.compile(r"KeyboardInterrupt\b"),
        "KeyboardInterrupt",
    ),
)

WEAK: Final = (
    *NETWORK,
    LogPattern(
        Diagnosis(
            "loss_not_finite",
            "The loss became NaN or infinite.",
            USER,
            UNKNOWN,
            "Lower the learning rate, clip gradients, look for bad samples, or resume earlier.",
        ),
        ("nan", "NaN", "inf", "Inf"),
        re.compile(r"\b[Ll]oss\b.{0,24}\b(?:[nN]a[nN]|[Ii]nf(?:inity)?)\b", re.ASCII),
        "Loss is nan, stopping training",
    ),
    LogPattern(
        Diagnosis(
            "command_not_found",
            "Its command line names a program that was not found.",
            USER,
            UNKNOWN,
            "Check its spelling, PATH, and that it is installed where the task runs.",
        ),
        ("not found",),
        re.compile(
            r": command not found|\bsh: (?:line )?\d+: .{1,80}: not found"
            r"|^FATAL: {1,8}.{1,80}: executable file not found in \$PATH",
            re.MULTILINE,
        ),
        "/bin/sh: 1: torchrun: not found",
    ),
    LogPattern(
        Diagnosis(
            "not_executable",
            "Its command line names a file that may not be executed.",
            USER,
            UNKNOWN,
            "chmod +x the file, or name its interpreter: bash run.sh, python train.py.",
        ),
        ("ermission denied", "bad interpreter"),
        re.compile(r"\b(?:ba|da|z)?sh: .{1,120}: Permission denied|: bad interpreter: "),
        "bash: line 1: ./run.sh: Permission denied",
    ),
    LogPattern(
        Diagnosis(
            "killed",
            "One of its processes was killed from outside.",
            PLATFORM,
            UNKNOWN,
            "The node may have run out of memory as a whole; or a person killed it.",
        ),
        ("Killed", "SIGKILL"),
        _line(_RANK + r"Killed\b|: line \d+: +\d+ Killed\b|\(SIGKILL\)|Signals\.SIGKILL"),
        "run.sh: line 3:  4711 Killed                  python train.py",
    ),
)

PYTHON_EXCEPTION: Final = Diagnosis(
    "python_exception",
    "The program ended in a Python exception.",
    USER,
    UNKNOWN,
    "Read the traceback at the end of its output: allot logs JOB.",
)
