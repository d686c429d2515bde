"""Who plays: five jobs of three teams, as anybody would submit them.

All run the same small training job, `train.py`, paced so that a person can follow and two
cores can carry six processes. What differs is how many processes, how many steps, and
that one of them fails on purpose.
"""

import sys
from pathlib import Path

from allotment.demo.setting import PLACES, TEAMS, Setting
from allotment.model.quantity import show_milli

LARGE, BASE, TUNE, BROKEN, OWNER = (
    "vision-large",
    "nlp-base",
    "nlp-tune",
    "vision-broken",
    "speech-main",
)
NAMES = (LARGE, BASE, TUNE, BROKEN, OWNER)
RETRIES = 2
CHECKPOINT_EVERY = 40
STEPS = {LARGE: 320, BASE: 200, TUNE: 150, BROKEN: 200, OWNER: 150}
PROCESSES = {LARGE: 3, BASE: 2, TUNE: 2, BROKEN: 1, OWNER: 2}
STEP_MS = {LARGE: 70, BASE: 75, TUNE: 60, BROKEN: 50, OWNER: 60}
GRACE_S = 10
CODE = Path(__file__).parent


def team_of(name: str) -> str:
    """Return the team a job belongs to: jobs are named after it."""
    return name.partition("-")[0]


def job(name: str, setting: Setting) -> dict[str, object]:
    """Return one job in its native form."""
    place = setting.place
    return {
        "name": name,
        "tenant": team_of(name),
        "count": PROCESSES[name],
        "resources": {
            "gpu": float(show_milli(place.gpu_milli)),
            "cpu": place.cpu_milli / 1000,
            "memory": f"{place.memory}B",
        },
        **_program(name, setting),
        "env": {"PYTHONDONTWRITEBYTECODE": "1"},
        "retry": RETRIES if name == BROKEN else 0,
        "max_run_time": f"{2 * setting.pace}min",
    }


def _program(name: str, setting: Setting) -> dict[str, object]:
    """Return what runs, and where it saves. A pod sees no folder of ours, so its program is a
    word of its command."""
    options, checkpoint = _options(name, setting), {"signal": "USR1", "grace": f"{GRACE_S}s"}
    if setting.pods is None:
        command = [sys.executable, "train.py", *options]
        return {"code": str(CODE), "command": command, "checkpoint": checkpoint}
    if kept := setting.pods.kept:
        checkpoint["dir"] = f"{kept}/{name}"
    text = (CODE / "train.py").read_text()
    return {"command": ["python3", "-c", text, *options], "checkpoint": checkpoint}


def everywhere(setting: Setting) -> dict[str, object]:
    """Return a job that has all places at once: by it every node pulls the image."""
    return job(LARGE, setting) | {
        "name": f"{TEAMS[0]}-image",
        "count": PLACES,
        "command": ["python3", "-c", "import numpy"],
        "max_run_time": "2min",
    }


def tidy(setting: Setting, kept: str) -> dict[str, object]:
    """Return a job that removes what the others saved on a volume."""
    return job(BROKEN, setting) | {
        "name": f"{TEAMS[0]}-tidy",
        "command": ["rm", "-rf", kept],
        "retry": 0,
    }


def _options(name: str, setting: Setting) -> list[str]:
    options = ["--steps", str(STEPS[name]), "--step-time-ms"]
    options += [str(STEP_MS[name] * setting.pace)]
    options += ["--checkpoint-every", str(CHECKPOINT_EVERY), "--log-every", "5"]
    if name == BROKEN:
        options += ["--fail-at-step", "12", "--fail-with", "cuda-oom"]
    else:
        options += ["--require-accuracy", "0.9"]
    return options


def in_short(name: str) -> str:
    """Write how a job is submitted, as far as it matters."""
    way = " --fail-with cuda-oom" if name == BROKEN else ""
    return f"{PROCESSES[name]} × python train.py --steps {STEPS[name]}{way}"
