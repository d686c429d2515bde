"""The objects that run the service itself in a pod of the cluster. Pure."""

from collections.abc import Sequence
from typing import Any

from allotment.backends.kubernetes.manifests import ACCOUNT, USUAL, Manifest

NAME = "allotment"
USER = 1000
"""Whom the service runs as: nobody of the node's, and never root."""
DISK, STATE = "/var/lib/allotment", "/var/lib/allotment/state"
"""The volume belongs to root: the state folder is one that the service makes in it."""
CONFIG = "/etc/allotment"
LOOK = """\
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(5)
s.connect("{}/allot.sock")
s.sendall(b"GET /{} HTTP/1.0\\r\\nHost: allot\\r\\n\\r\\n")
sys.exit(b" 200 " not in s.recv(64))
"""
"""The service listens on its socket, and on no network: so it is asked from inside."""


def service_pod(image: str, config: str, namespace: str = USUAL) -> list[Manifest]:
    """Return what runs a service with this configuration, in the namespace of its account."""
    return [
        _object("v1", "ConfigMap", namespace) | {"data": {"config.yaml": config}},
        _object("v1", "PersistentVolumeClaim", namespace)
        | {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "20Gi"}},
            }
        },
        _object("apps/v1", "Deployment", namespace) | {"spec": _deployment(image)},
    ]


def _deployment(image: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": NAME}
    return {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # two of them would want one disk
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(image)},
    }


def _pod(image: str) -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": image,
        "command": ["allot", "up", "--foreground", "--config", f"{CONFIG}/config.yaml"],
        "env": [
            {"name": "ALLOT_STATE", "value": STATE},
            {"name": "HOME", "value": STATE},
        ],
        "resources": {
            "requests": {"cpu": "500m", "memory": "512Mi"},
            "limits": {"memory": "2Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # A long log is read before the service answers.
        "startupProbe": _probe("healthz", period_s=5, misses=120),
        "livenessProbe": _probe("healthz", period_s=30, misses=4),
        "readinessProbe": _probe("readyz", period_s=15, misses=2),
        "volumeMounts": [
            {"name": "disk", "mountPath": DISK},
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    return {
        "serviceAccountName": ACCOUNT,
        "terminationGracePeriodSeconds": 60,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "disk", "persistentVolumeClaim": {"claimName": NAME}},
            {"name": "config", "configMap": {"name": NAME}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _probe(path: str, *, period_s: int, misses: int) -> dict[str, Any]:
    argv: Sequence[str] = ("python3", "-IS", "-c", LOOK.format(STATE, path))
    return {
        "exec": {"command": list(argv)},
        "periodSeconds": period_s,
        "timeoutSeconds": 10,
        "failureThreshold": misses,
    }


def _object(version: str, kind: str, namespace: str) -> Manifest:
    meta = {"name": NAME, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": meta}
