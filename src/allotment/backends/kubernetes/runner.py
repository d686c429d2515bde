"""The first process of a pod where `fence_after` is set, or its job wants to be kept when it
fails: some shell, then the command.

The shell waits until its gang is let go, leaves a guard behind, and becomes the command: exit
code, signals and output are the command's own. The guard ends all processes of the pod when
its node has not brought a beat of the service for `fence_after`. A beat that names the node as
silent does not count. So of a node that is silent it is known when its tasks are dead.

Where a task is kept when it fails, the shell stays and waits for the command. If that fails, it
says so among the output and sleeps; the pod goes on as it is. What the kubelet tells the shell
does not reach the command, so a hook before it tells all processes.

It needs `/bin/sh`, `sleep`, and for the guard a `date` that knows `-r`, of any image; no
network and no key: beats and the word to go are files that the kubelet writes.
"""

import re
from collections.abc import Sequence
from typing import Any

AT = "/.allotment"
BEAT = "beat"
"""The only file of a beat: a number of its own, and a line with the nodes that are silent."""
GO = "allotment.io/go"
"""An annotation: the gang of a pod may begin."""
UNHEARD = "allotment: nothing was heard from the service for so long that the task ended itself"
UNGUARDED = "allotment: the task has so many processes that its guard could not continue"
KEPT = "allotment: it failed with {} and is kept as it is, for {} s [{}]"

SCRIPT = f"""\
look() {{ read -r up _ </proc/uptime; up=${{up%%.*}} wall=$(date +%s); }}
hear() {{
  {{ read -r beat; read -r silent; }} <{AT}/beat/{BEAT} || return
  [ "$beat" != "$last" ] || return
  last=$beat
  case " $silent " in *" $node "*) return ;; esac
  came=$(date -r {AT}/beat/{BEAT} +%s)
  [ "$came" -le "$wall" ] || came=$wall
  came_up=$((up - wall + came))
}}
is_over() {{
  [ -z "$came" ] || [ $((wall - came)) -ge $fence_s ] || [ $((up - came_up)) -ge $fence_s ]
}}
say() {{ echo "$1" >/dev/termination-log; }}
begin() {{
  fence_s=$1 node=$2 last= came= PATH=$PATH:/usr/bin:/bin
  if ! date -r / +%s >/dev/null; then
    echo "allotment: this image has no 'date' that knows -r, which fence_after needs" >&2
    exit 127
  fi
  look; hear
  if is_over; then say "{UNHEARD}"; exit 75; fi
}}
give_up() {{
  say "{UNGUARDED}"
  kill -s TERM -- -1
  read -r up _ </proc/uptime; late=$((${{up%%.*}} + 10))
  while [ "${{up%%.*}}" -lt $late ]; do read -r up _ </proc/uptime; done
  kill -s KILL -- -1; kill -s KILL -- -1
}}
guard() {{
  trap '' HUP INT QUIT TERM USR1 USR2 ALRM
  trap give_up EXIT
  while kill -0 $$; do
    look
    if is_over; then
      say "{UNHEARD}"
      kill -s TERM -- -1; sleep 10; kill -s KILL -- -1; kill -s KILL -- -1; break
    fi
    hear
    sleep $((fence_s < 300 ? 1 : 5))
  done
  trap - EXIT
}}
trap 'exit 143' TERM
if [ "$1" != 0 ]; then
  (begin "$1" "$2"; guard </dev/null >/dev/null 2>&1 &) || exit
fi
if [ "$3" = 1 ]; then
  until [ -s {AT}/pod/go ]; do PATH=$PATH:/usr/bin:/bin sleep 0.2 & wait $!; done
fi
trap - TERM
if [ "$4" = 0 ]; then
  shift 5
  exec "$@"
fi
trap 'set -- 0 "" 0 0 ""' HUP INT QUIT TERM USR1 USR2 ALRM
(shift 5; exec "$@")
code=$? PATH=$PATH:/usr/bin:/bin
if [ $code != 0 ] && [ "$4" != 0 ]; then
  echo "{KEPT.format("$code", "$4", "$5")}" >&2
  read -r up _ </proc/uptime; late=$((${{up%%.*}} + $4))
  while [ "$4" != 0 ] && [ "${{up%%.*}}" -lt $late ]; do
    sleep 1 & wait $!
    read -r up _ </proc/uptime
  done
fi
exit $code
"""
"""All but the end of it is in a process of its own, so that the command gets its variables as
they were; the shell that waits for it has none before it has ended, and notes a signal in its
own arguments; it looks there each second, as a signal just before `wait` ends no wait. A guard
that looks finds out that it is late before it hears: a machine that stood still must not go on
by a beat that came as it woke up. The time of a file is when it came, by the node's own clock;
the time since the node's start holds where that clock is set back. A shell that cannot start a
process ends, so a guard then ends the task with what is built into it: one without would run
for ever on a node that is lost."""


def led(
    argv: Sequence[str],
    node: str,
    fence_s: int,
    *,
    is_held: bool,
    keep_s: int = 0,
    token: str = "",
) -> list[str]:
    """Return the command of a pod whose first process is ours. After a failure it is kept for
    `keep_s`; `token` is by what the service knows that from other output."""
    words = (str(fence_s), node, str(int(is_held)), str(keep_s), token)
    return ["/bin/sh", "-c", SCRIPT, "allotment", *words, *argv]


TELL_ALL = {"exec": {"command": ["/bin/sh", "-c", "kill -s TERM -- -1"]}}
"""What a kubelet does before it tells the first process to end: the command is not that one."""


def failure_in(text: bytes, token: str) -> int | None:
    """Return the exit code with which a task failed that is kept now; None for other output."""
    if token.encode() not in text:
        return None
    words = re.escape(KEPT).replace(r"\{\}", "{}").format("([0-9]{1,3})", "[0-9]+", token)
    found = re.search(words.encode(), text)
    return int(found[1]) if found else None


def mounts() -> list[dict[str, Any]]:
    """Return where a pod finds what its first process hears."""
    return [
        {"name": "allotment-beat", "mountPath": f"{AT}/beat", "readOnly": True},
        {"name": "allotment-pod", "mountPath": f"{AT}/pod", "readOnly": True},
    ]


def volumes(beats: str) -> list[dict[str, Any]]:
    """Return what is found there. `beats` is the ConfigMap that has the service's.

    Two, as the kubelet writes all files of a volume anew when one changes: a word to go would
    look like a beat.
    """
    go = {"path": "go", "fieldRef": {"fieldPath": f"metadata.annotations['{GO}']"}}
    return [
        {"name": "allotment-beat", "configMap": {"name": beats}},
        {"name": "allotment-pod", "downwardAPI": {"items": [go]}},
    ]
