"""service.log: one JSON object a line, rotated, closed to others, without secrets."""

import contextlib
import logging
import os
import sys
from collections.abc import MutableMapping
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec
import structlog
from structlog.typing import Processor

FILE = "service.log"
MOST_BYTES, KEEP = 10 << 20, 5
SECRET_WORDS = ("token", "secret", "password", "authorization", "cookie", "environ")
LONGEST_TRACE = 20_000


def open_logbook(folder: Path) -> None:
    """Send all logging of this process to the folder's log; once a process.

    Where stderr is something else than that file, warnings are shown there too.
    """
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )
    logging.raiseExceptions = False  # a full disk under the log is no reason to fail
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    logging.getLogger("allot").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # we log what matters of it
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.addHandler(_file_handler(folder / FILE, shared))
    if not _is_stderr(folder / FILE):
        root.addHandler(_console_handler(shared))


def close_logbook() -> None:
    """Write out and close what `open_logbook` opened."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()


def without_secrets(
    logger: object, method: str, entry: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    """Replace the values of a log line whose names say that they are secret."""
    for name in entry:
        if any(word in name.lower() for word in SECRET_WORDS):
            entry[name] = "***"
    return entry


def _file_handler(path: Path, shared: list[Processor]) -> logging.Handler:
    path.touch(mode=0o600)
    path.chmod(0o600)
    handler = RotatingFileHandler(path, maxBytes=MOST_BYTES, backupCount=KEEP)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _bounded,
                structlog.processors.JSONRenderer(serializer=_as_json),
            ],
        )
    )
    return handler


def _console_handler(shared: list[Processor]) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(),
                    exception_formatter=structlog.dev.plain_traceback,
                ),
            ],
        )
    )
    return handler


def _bounded(
    logger: object, method: str, entry: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    trace = entry.get("exception")
    if isinstance(trace, str) and len(trace) > LONGEST_TRACE:
        entry["exception"] = f"{trace[: LONGEST_TRACE // 2]} … {trace[-LONGEST_TRACE // 2 :]}"
    return entry


def _as_json(entry: object, **_: object) -> str:
    return msgspec.json.encode(entry, enc_hook=str).decode()


def _is_stderr(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return os.path.samestat(path.stat(), os.fstat(2))
    return False
