"""`allot kubernetes`: the rights of a service in a cluster, and what it finds there."""

import asyncio
import io
import re
from typing import Annotated

import msgspec
import typer

from allotment.cli.daemon import folder_of
from allotment.cli.doctor import tell_findings
from allotment.cli.doctor_finding import Finding, Level
from allotment.cli.doctor_kubernetes import kubernetes as looked_at
from allotment.cli.doctor_kubernetes import look, setups_in
from allotment.cli.options import AsJson, StateFolder
from allotment.cli.output import Failed, say, talk, warn
from allotment.cli.words import count
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import EngineAway
from allotment.wire.tree import Plain

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""The name of a namespace, as Kubernetes has it."""
WHOSE = re.compile(r"[^\s/,]+(/[^\s/,]+)*")

kubernetes = typer.Typer(
    help="A Kubernetes cluster: the service's rights, a check, its cells.",
    epilog="\b\nExamples:\n"
    "  allot kubernetes manifests | kubectl apply -f -\n"
    "  allot kubernetes cells\n"
    "  allot kubernetes doctor --kubeconfig default",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", metavar="NAME", help="The namespace for the pods of tasks."
    ),
]
Kubeconfig = Annotated[
    str,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="A cluster that no service uses yet; `default`: kubectl's own.",
    ),
]
Context = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Which of its contexts.")
]
Placed = Annotated[
    list[str] | None,
    typer.Option(
        "--tenant",
        metavar="NAMESPACE=TENANT",
        help="A namespace whose own pods are placed, and for whom: team-a=lab, or "
        "team-b=lab/nlp,lab/urgent. Repeatable.",
    ),
]
OfTenants = Annotated[
    list[str] | None,
    typer.Option(
        "--jobs-of",
        metavar="TENANT=NAMESPACE",
        help="A tenant whose tasks are in a namespace of their own: lab=jobs-lab. Repeatable.",
    ),
]


@kubernetes.command(
    epilog="\b\nExamples:\n"
    "  allot kubernetes manifests | kubectl apply -f -\n"
    "  allot kubernetes manifests -n jobs --tenant team-a=lab/nlp,lab\n"
    "  allot kubernetes manifests --service registry.example.org/allotment:0.1\n"
    "  allot kubernetes manifests --jobs-of lab=jobs-lab --jobs-of nlp=jobs-nlp",
)
def manifests(
    namespace: Namespace = "allotment",
    tenant: Placed = None,
    jobs_of: OfTenants = None,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="The image of jobs that name none.")
    ] = "",
    service: Annotated[
        str,
        typer.Option(
            "--service",
            metavar="IMAGE",
            help="Also run the service in a pod: an image with Allotment.",
        ),
    ] = "",
) -> None:
    """Print the manifests for the service: a namespace, an account, and its rights.

    Comments at the top have the matching engine for the configuration of the service. With
    --service, a Deployment runs the service with this configuration in the cluster. The
    namespaces of --tenant must exist.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 - only here
    from ruamel.yaml.scalarstring import (  # noqa: PLC0415
        walk_tree,  # pyright: ignore[reportUnknownVariableType]
    )

    from allotment.backends.kubernetes.manifests import manifests as made  # noqa: PLC0415
    from allotment.wire.config_text import config_text  # noqa: PLC0415

    placed = _placed(tenant or [])
    _check(namespace, "--namespace")
    if namespace in placed:
        raise Failed(
            f"{namespace} is where tasks are: pods of others are not placed there.",
            "Name another --namespace.",
        )
    engine: dict[str, Plain] = {"type": "kubernetes", "namespace": namespace}
    if image:
        engine["image"] = image
    apart = _apart(jobs_of or [])
    if both := sorted({*apart.values()} & placed.keys()):
        raise Failed(
            f"{both[0]} is among --tenant: there others make pods, and not the service.",
            "Name another namespace for tasks.",
        )
    if apart:
        engine["tenant_namespaces"] = dict(apart)
    if placed:
        engine["namespaces"] = {name: list(whose) for name, whose in placed.items()}
    config: dict[str, Plain] = {"engines": {"kubernetes": engine}}
    objects = made(namespace, list(placed), sorted({*apart.values()} - {namespace}))
    if service:
        from allotment.backends.kubernetes.service_pod import service_pod  # noqa: PLC0415

        engine["kubeconfig"] = "in-cluster"
        whose = {word.partition("/")[0] for words in placed.values() for word in words}
        names = sorted(whose | apart.keys()) or ["default"]
        tenants: dict[str, Plain] = {name: {} for name in names}
        objects += service_pod(service, config_text({**config, "tenants": tenants}), namespace)
    text = io.StringIO()
    yaml = YAML()
    yaml.explicit_start = True  # pyright: ignore[reportAttributeAccessIssue]
    walk_tree(objects)  # lines of a text stay lines
    yaml.dump_all(objects, text)  # pyright: ignore[reportUnknownMemberType]
    for line in config_text(config).splitlines():
        say(f"# {line}")
    say(text.getvalue().rstrip("\n"))


@kubernetes.command(
    epilog="\b\nExamples:\n"
    "  allot kubernetes doctor\n"
    "  allot kubernetes doctor --kubeconfig default -n jobs --tenant team-a=lab",
)
def doctor(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    namespace: Namespace = "",
    tenant: Placed = None,
    state: StateFolder = "",
    as_json: AsJson = False,
) -> None:
    """Check the clusters of the service: the version, each right by name, and the nodes.

    With --kubeconfig, check a cluster that no service uses yet.

    The exit code is 1 if something necessary is broken, not for a note or a warning.
    """
    if kubeconfig:
        setup = EngineSetup(
            "kubernetes", EngineType.KUBERNETES, context=context, namespace=namespace,
            kubeconfig="" if kubeconfig == "default" else kubeconfig,
            namespaces=tuple((name, tuple(who)) for name, who in _placed(tenant or []).items()),
        )  # fmt: skip
        found = asyncio.run(look(setup))
    elif context or namespace or tenant:
        raise Failed(
            "--context, --namespace and --tenant are for a cluster of --kubeconfig.",
            "Name its kubeconfig, or leave them out: the service's configuration has them.",
        )
    else:
        text = "the configuration of the service names no cluster"
        advice = "Name one: --kubeconfig FILE, or `allot up --kubernetes FILE`."
        none = Finding("kubernetes", Level.NOTE, text, advice)
        found = looked_at(folder_of(state)) or [none]
    tell_findings(found, as_json=as_json)


@kubernetes.command(
    epilog="\b\nExamples:\n"
    "  allot kubernetes cells\n"
    "  allot kubernetes cells --level example.com/row --level example.com/rack",
)
def cells(
    *,
    level: Annotated[
        list[str] | None,
        typer.Option(
            "--level",
            metavar="LABEL",
            help="A label of nodes that says in which cell they lie, the outermost first. "
            "Repeatable; without it, those that clouds and NVIDIA set.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    state: StateFolder = "",
) -> None:
    """Print cell types for the configuration, made of the labels of the nodes there are.

    Which cells these make, and which nodes lie in none, is listed on standard error. Nothing is
    changed: put what is printed under `cells` of the configuration, and apply that.
    """
    from allotment.backends.kubernetes.cells import proposed  # noqa: PLC0415 - only here
    from allotment.backends.kubernetes.discover import PLACES  # noqa: PLC0415
    from allotment.model.cells_by_label import listed, made_of, word_of  # noqa: PLC0415
    from allotment.wire.cells_write import type_to_wire  # noqa: PLC0415
    from allotment.wire.config_text import config_text  # noqa: PLC0415
    from allotment.wiring.kubernetes import discovered, unanswered  # noqa: PLC0415

    levels = level or []
    setup = _setup_of(kubeconfig, context, state)
    own = tuple(dict.fromkeys((*setup.labels, *levels)))
    try:
        nodes = discovered(msgspec.structs.replace(setup, labels=own), is_first=True)
    except EngineAway as error:
        raise unanswered(error) from error
    there = {key for node in nodes for key, _ in node.labels}
    if lacking := next((each for each in levels if word_of(each) not in there), ""):
        known = ", ".join(sorted(there)) or "none"
        raise Failed(
            f"No node has the label {lacking}.",
            f"Labels that say where nodes stand: {known}. `kubectl get nodes --show-labels` "
            "lists all.",
        )
    found = proposed(nodes, tuple(map(word_of, levels)))
    types = {kind.name: kind for kind in found.types}
    head = "Made of the labels of nodes by `allot kubernetes cells`."
    new = [each for each in levels if each not in setup.labels and not each.startswith(PLACES)]
    if new:
        head += f"\nUnder the engine: labels: [{', '.join((*setup.labels, *new))}]"
    written: dict[str, Plain] = {
        name: {key: value for key, value in type_to_wire(kind).items() if value}
        for name, kind in types.items()
    }
    say(config_text({"cells": {"types": written}}, head).rstrip("\n"))
    made = made_of(types, nodes)
    for kind in types:
        if names := [cell.name for cell in made.cells if cell.type == kind]:
            talk(f"{kind}: {count(len(names), 'cell')} ({listed(names)})")
    for note in (*found.notes, *(f"{odd.why}: in no cell" for odd in made.odd)):
        warn(note)


def _setup_of(kubeconfig: str, context: str, state: str) -> EngineSetup:
    """Return a cluster by its kubeconfig, else the first one of the service. Raises Failed."""
    if kubeconfig:
        file = "" if kubeconfig == "default" else kubeconfig
        return EngineSetup(
            "kubernetes", EngineType.KUBERNETES, kubeconfig=file, context=context
        )
    for setup in setups_in(folder_of(state)):
        if setup.type is EngineType.KUBERNETES:
            return setup
    raise Failed(
        "The configuration of the service names no cluster.", "Name one: --kubeconfig FILE."
    )


def _placed(words: list[str]) -> dict[str, list[str]]:
    """Read which namespaces are whose. Raises Failed."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, _, said = word.partition("=")
        whose = said.split(",")
        if not all(WHOSE.fullmatch(each) for each in whose):
            raise Failed(
                f"--tenant {word} is not NAMESPACE=TENANT.", "Write it so: team-a=lab/nlp,lab."
            )
        _check(name, "--tenant")
        if name in found:
            raise Failed(f"--tenant names {name} twice.", "Write team-a=lab/nlp,lab/urgent.")
        found[name] = whose
    return found


def _apart(words: list[str]) -> dict[str, str]:
    """Read in which namespaces the tasks of tenants are. Raises Failed."""
    found: dict[str, str] = {}
    for word in words:
        tenant, _, namespace = word.partition("=")
        if not WHOSE.fullmatch(tenant) or not namespace:
            raise Failed(
                f"--jobs-of {word} is not TENANT=NAMESPACE.", "Write it so: lab=jobs-lab."
            )
        _check(namespace, "--jobs-of")
        if tenant in found:
            raise Failed(f"--jobs-of names {tenant} twice.", "A tenant has one namespace.")
        found[tenant] = namespace
    return found


def _check(namespace: str, option: str) -> None:
    if not LABEL.fullmatch(namespace):
        raise Failed(
            f"{option}: {namespace!r} cannot be the name of a namespace.",
            "It has lower-case letters, digits and `-`, 63 at most.",
        )
