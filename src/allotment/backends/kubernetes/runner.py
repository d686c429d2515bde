"""The first process of a pod where `fence_after` is set: some shell, then the command.

The shell waits until its gang is let go, leaves a guard behind, and becomes the command: exit
code, signals and output are the command's own. The guard ends all processes of the pod when
its node has not brought a beat of the service for `fence_after`. A beat that names the node as
silent does not count. So of a node that is silent it is known when its tasks are dead.

It needs `/bin/sh`, `sleep`, and a `date` that knows `-r`, of any image; no network and no key:
beats and the word to go are files that the kubelet writes.
"""

from collections.abc import Sequence
from typing import Any

AT = "/.allotment"
BEAT = "beat"
"""The only file of a beat: a number of its own, and a line with the nodes that are silent."""
GO = "allotment.io/go"
"""An annotation: the gang of a pod may begin."""
UNHEARD = "allotment: nothing was heard of the service for so long that the task ended itself"

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
say() {{ echo "{UNHEARD}" >/dev/termination-log; }}
begin() {{
  fence_s=$1 node=$2 last= came= PATH=$PATH:/usr/bin:/bin
  if ! date -r / +%s >/dev/null; then
    echo "allotment: this image has no 'date' that knows -r, which fence_after needs" >&2
    exit 127
  fi
  look; hear
  if is_over; then say; exit 75; fi
}}
guard() {{
  trap '' HUP INT QUIT TERM USR1 USR2 ALRM
  while kill -0 $$; do
    look
    if is_over; then
      say
      kill -s TERM -- -1; sleep 10; kill -s KILL -- -1; kill -s KILL -- -1; exit
    fi
    hear
    sleep $((fence_s < 300 ? 1 : 5))
  done
}}
trap 'exit 143' TERM
(begin "$1" "$2"; guard </dev/null >/dev/null 2>&1 &) || exit
if [ "$3" = 1 ]; then
  until [ -s {AT}/pod/go ]; do PATH=$PATH:/usr/bin:/bin sleep 0.2 & wait $!; done
fi
trap - TERM
shift 3
exec "$@"
"""
"""All but the end of it is in a process of its own, so that the command gets its variables as
they were. A guard that looks finds out that it is late before it hears: a machine that stood
still must not go on by a beat that came as it woke up. The time of a file is when it came, by
the node's own clock; the time since the node's start holds where that clock is set back."""


def led(argv: Sequence[str], node: str, fence_s: int, *, is_held: bool) -> list[str]:
    """Return the command of a pod whose first process is ours."""
    words = (str(fence_s), node, str(int(is_held)))
    return ["/bin/sh", "-c", SCRIPT, "allotment", *words, *argv]


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
