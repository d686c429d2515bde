"""What `--set key=value` may say: one typed value, each key with its meaning and source."""

from collections.abc import Iterable, Mapping
from math import isnan
from typing import Literal, cast, get_args

import msgspec

from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND
from allotment.sim.bad import BadScenario

LONGEST_MS = 36_525 * DAY


class BadSetting(BadScenario):
    """A setting that cannot be used: what, and what would be right."""


class Settings(msgspec.Struct, frozen=True):
    """The knobs of policies and of the world. Lengths of time in milliseconds."""

    within: Literal["", "node", "switch", "rack"] = ""
    """All tasks of a job must be in one cell of this level."""
    prefer: Literal["", "node", "switch", "rack"] = ""
    """They should be, if that is possible now."""
    tasks: Literal["", "node"] = ""
    """`node`: jobs become tasks of up to 8 devices, each on one node."""
    placing: Literal["pack", "spread", "fgd"] = "pack"
    priorities: Literal["keep", "ignore"] = "keep"
    """`ignore`: all jobs have the same, whatever the trace says."""
    order: Literal["", "strict", "skip", "easy", "conservative"] = ""
    """What may pass a blocked job; empty: as the policy says."""
    turns: Literal["", "never", "at_once", "rounds"] = ""
    """When running jobs are preempted for waiting ones; empty: as the policy says."""
    eviction: Literal["", "requeue", "suspend"] = ""
    """What preempted jobs do; empty: as their tenant says."""
    migrate: Literal["no", "yes"] = "no"
    """Whether running jobs go to fewer nodes, and off nearly empty ones, when they can."""
    grow_ms: int = 0
    """For how long devices are idle before running jobs grow onto them; 0: jobs do not grow."""
    grow_to: int = 2
    """`grow`: a job may have so many times the tasks that it asks for."""
    scaling: float = 1.0
    """`grow`: the speed of a job goes with its tasks to this power: 1 in proportion, 0 not."""
    warned: Literal["save", "ignore"] = "save"
    """What jobs do when told to leave; `ignore`: work since their last checkpoint is lost."""
    round_ms: int = 360 * SECOND
    """Length of a round (Gavel, OSDI 2020: six minutes)."""
    lead_ms: int = 2 * HOUR
    """`maxmin`: how much more device-time a running job has had before it is preempted."""
    queues: tuple[int, ...] = (3_250 * SECOND, 7_200 * SECOND)
    """Limits of the queues of `las2d`, in device-milliseconds (Tiresias' own)."""
    first_ms: int = 60 * SECOND
    """`las`: the device-time up to which all jobs count as alike."""
    promote: int = 0
    """`las2d`: back to the first queue after waiting this many times the run time; 0 never."""
    estimates: Literal["exact", "noisy", "history", "limit", "predicted"] = "exact"
    """What policies that ask for run times are told."""
    noise: float = 0.3
    """`noisy`: the standard deviation of the logarithm of told over true run time."""
    start_ms: int = 0
    """From placing a gang to its running, until it has run for the first time."""
    resume_ms: int = 0
    """The same, when it starts again after it has run."""
    switch_ms: int = 0
    """Run time that a gang loses each time it is suspended and goes on (Gandiva, OSDI 2018:
    100 ms to 1 s)."""
    stop_ms: int = 0
    """From telling a gang to go to its being gone; it makes no progress meanwhile."""
    checkpoint_ms: int = 0
    """Work since the last multiple of this is lost on a fault, and by jobs that ignore being
    told to leave; 0 loses nothing."""
    types: Literal["listed", "chance", "best"] = "listed"
    """Where speed differs by type and a job takes any: which it tries first."""
    across_nodes: float = 1.0
    """Speed left to a gang that spans nodes (Philly, ATC 2019: 0.85)."""
    across_switches: float = 1.0
    """The same across switches, by the nodes' label `switch`."""
    across_racks: float = 1.0
    """The same across racks, by the nodes' label `rack`."""
    interference: float = 1.0
    """Speed left to a job with others on one of its nodes (Philly, ATC 2019: 0.66)."""
    mtbf_ms: int = 0
    """Mean time between failures of one node; 0 for none."""
    mttr_ms: int = 4 * HOUR
    """Mean time to repair a node."""
    job_failure: float = 0.0
    """The chance that an attempt fails by itself somewhere on its way."""
    retries: int = 3
    """How often a job that failed by itself is tried again."""


def read_settings(pairs: Iterable[str]) -> Settings:
    """Read `key=value` words. Raises BadSetting."""
    found: dict[str, object] = {}
    known = {_shown(name): name for name in Settings.__struct_fields__}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals:
            raise BadSetting(f"--set {pair}: write KEY=VALUE.")
        if not key:
            raise BadSetting(f"--set {pair}: write KEY=VALUE.")
        if key not in known:
            from difflib import get_close_matches  # noqa: PLC0415 - an estimate needs none

            near = get_close_matches(key, known, 3, 0.5) or get_close_matches(key, known, 3, 0)
            raise BadSetting(f"--set {key}: there is no such setting. Near: {', '.join(near)}.")
        try:
            found[known[key]] = _value(known[key], value.strip())
        except BadSetting as error:
            raise BadSetting(f"--set {key}: {error}") from error
    try:
        settings = msgspec.convert(found, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"--set{_reason(error, found)}") from error
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    for name in Settings.__struct_fields__:
        value: object = getattr(settings, name)
        if not isinstance(value, int | float):
            continue
        wrong = "write a number" if isnan(value) else "it cannot be negative"
        if isnan(value) or value < 0:
            raise BadSetting(f"--set {_shown(name)}: {wrong}.")
    for name, least, most, rule in RANGES:
        if not least <= getattr(settings, name) <= most:
            raise BadSetting(f"--set {_shown(name)}: {rule}.")
    if 0 < settings.mtbf_ms < MINUTE:
        raise BadSetting(
            "--set mtbf: a node that fails every minute does no work; write at least 1min, "
            "or never."
        )
    if settings.switch_ms >= settings.round_ms:
        length = write_length(settings.round_ms)
        raise BadSetting(
            f"--set switch: it must be shorter than a round ({length}): "
            "otherwise no job gets anything done."
        )
    limits = settings.queues
    if list(limits) != sorted(set(limits)) or any(limit < 1 for limit in limits):
        raise BadSetting("--set queues: the limits must ascend from above 0.")


FACTOR = (0.001, 1, "it is a factor, from 0.001 to 1")

RANGES: tuple[tuple[str, float, float, str], ...] = (
    ("round_ms", 1, LONGEST_MS, "a round is longer than 0"),
    ("first_ms", 1, LONGEST_MS, "it is a length above 0"),
    ("noise", 0, 10, "it is at most 10"),
    ("job_failure", 0, 1, "it is a chance, from 0 to 1"),
    ("scaling", 0, 1, "it is from 0 to 1"),
    ("grow_to", 1, 64, "it is a whole number, from 1 to 64"),
    ("across_nodes", *FACTOR),
    ("across_switches", *FACTOR),
    ("across_racks", *FACTOR),
    ("interference", *FACTOR),
)


def chosen(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the settings that differ from their defaults, as they would be written."""
    plain = Settings()
    return tuple(
        (_shown(name), _written(name, getattr(settings, name)))
        for name in Settings.__struct_fields__
        if getattr(settings, name) != getattr(plain, name)
    )


def untouched(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the settings that are as they are by default, as they would be written."""
    touched = dict(chosen(settings))
    return tuple(
        (_shown(name), _default(name))
        for name in Settings.__struct_fields__
        if _shown(name) not in touched
    )


def _default(name: str) -> str:
    value: object = getattr(Settings(), name)
    word, meant = WORDS.get(name, ("", None))
    return word if word and value == meant else _written(name, value)


def _written(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(write_length(part) for part in cast("tuple[int, ...]", value))
    return write_length(cast("int", value)) if name.endswith("_ms") else str(value)


def _shown(name: str) -> str:
    return name.removesuffix("_ms")


WORDS: Mapping[str, tuple[str, object]] = {
    **dict.fromkeys(("within", "prefer", "tasks"), ("none", "")),
    **dict.fromkeys(("order", "turns"), ("policy", "")),
    "eviction": ("tenant", ""),
    **dict.fromkeys(("mtbf_ms", "promote", "grow_ms"), ("never", 0)),
}
"""What some defaults are called, and what they are."""
OLD: Mapping[tuple[str, str], str] = {("estimates", "promised"): "limit"}
"""Values by the names that they had before."""


def _value(name: str, text: str) -> object:
    word, value = WORDS.get(name, ("", None))
    if text and text == word:
        return value
    if name == "queues":
        return [read_length(part) for part in text.split(",")]
    if name.endswith("_ms"):
        return read_length(text)
    text = OLD.get((name, text), text)
    is_short = text.startswith(".") and text[1:2].isdigit()  # .3, a number to most
    return f"0{text}" if is_short else text


UNITS: Mapping[str, int] = {
    "ms": 1, "s": SECOND, "min": MINUTE, "m": MINUTE, "h": HOUR, "d": DAY, "": SECOND,
}  # fmt: skip


def read_length(text: str) -> int:
    """Read a length of time: 30s, 6min, 1.5h, 2d; a bare number is seconds. Gives ms."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip()
    try:
        length = round(float(number) * UNITS[unit])
    except (ValueError, KeyError, OverflowError) as error:
        raise BadSetting(
            f"{text!r} is not a length of time: write 30s, 6min, 1.5h or 2d."
        ) from error
    if abs(length) > LONGEST_MS:
        raise BadSetting(f"{text!r} is too long: at most {LONGEST_MS // DAY} d.")
    return length


def write_length(length_ms: int) -> str:
    """Write a length of time as `read_length` takes it, exactly: 30s, 6min, 90min, 2d."""
    units = ("d", "h", "min", "s", "ms")
    unit = next(unit for unit in units if length_ms % UNITS[unit] == 0)
    return f"{length_ms // UNITS[unit]}{unit}" if length_ms else "0"


def _reason(error: msgspec.ValidationError, found: Mapping[str, object]) -> str:
    text = str(error)
    name = text.rpartition("$.")[2].strip("`") if "$." in text else ""
    if name not in found:
        return f": {text}"
    choices = [word for word in get_args(Settings.__annotations__.get(name)) if word]
    word, _ = WORDS.get(name, ("", None))
    whole = "int" in text.partition(",")[0]
    if choices:
        wanted = f"one of {', '.join([*choices, word] if word else choices)}"
    else:
        wanted = f"write a {'whole ' * whole}number" + f" or {word}" * bool(word)
    return f" {_shown(name)}={found[name]}: {wanted}."
