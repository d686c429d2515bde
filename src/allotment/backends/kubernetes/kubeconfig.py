"""Where a cluster is and as whom it is asked: a kubeconfig, or a pod's own service account."""

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from datetime import datetime
from pathlib import Path
from time import monotonic, time
from typing import Any

import msgspec

from allotment.backends.program import said_by
from allotment.model.errors import BackendError, EngineAway

IN_CLUSTER = "in-cluster"
"""Instead of a file: the service runs in a pod of the cluster."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PLUGIN_S = 30.0
TOKEN_S = 60.0
"""How long a token of a file is used before it is read again: they are replaced."""
EARLY_S = 30.0
"""How long before its end a token of a plugin is asked for anew."""


class Plugin(msgspec.Struct, frozen=True):
    """A program that says a token or a certificate."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    version: str = "client.authentication.k8s.io/v1"


class Access(msgspec.Struct, frozen=True):
    """A cluster, and as whom it is asked."""

    server: str
    namespace: str = "default"
    ca: bytes = b""
    """PEM; those of the system where it is empty."""
    is_checked: bool = True
    """Whether the server has to show a certificate that is right."""
    server_name: str = ""
    token: str = ""
    token_file: str = ""
    cert: bytes = b""
    key: bytes = b""
    plugin: Plugin | None = None


def found_file(named: str) -> str:
    """Return the kubeconfig that is meant: the named one, or the one `kubectl` would read."""
    if named:
        return named if named == IN_CLUSTER else str(Path(named).expanduser().absolute())
    if first := os.environ.get("KUBECONFIG", "").partition(":")[0]:
        return str(Path(first).absolute())
    own = Path("~/.kube/config").expanduser()
    if not own.exists() and (ACCOUNT / "token").exists():
        return IN_CLUSTER
    return str(own)


def access_of(file: str, context: str = "") -> Access:
    """Read a kubeconfig. Raises BackendError with what is wrong with it."""
    if file == IN_CLUSTER:
        return _own_account()
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree: Any = YAML(typ="safe", pure=True).load(Path(file))  # pyright: ignore[reportUnknownMemberType]
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BackendError(f"kubeconfig {file}: {why}") from error
    except YAMLError as error:
        raise BackendError(f"kubeconfig {file} is not valid YAML: {error}") from error
    try:
        return _access(tree, context, Path(file).parent)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise BackendError(f"kubeconfig {file}: {_words(error)}") from error


def _words(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    if isinstance(error, (TypeError, AttributeError)):
        return "it is not a kubeconfig: it has something else where a map or a list belongs"
    return str(error)


def _access(tree: Any, context: str, folder: Path) -> Access:
    named = context or tree["current-context"]
    its = _named(tree["contexts"], named, "context")["context"]
    cluster = _named(tree["clusters"], its["cluster"], "cluster")["cluster"]
    user: Any = _named(tree["users"], its["user"], "user").get("user") or {}
    plugin: Any = user.get("exec")
    token_file = user.get("tokenFile", "")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=its.get("namespace") or "default",
        ca=_data(cluster, "certificate-authority", folder),
        is_checked=not cluster.get("insecure-skip-tls-verify", False),
        server_name=cluster.get("tls-server-name", ""),
        token=str(user.get("token", "")),
        token_file=str(folder / token_file) if token_file else "",
        cert=_data(user, "client-certificate", folder),
        key=_data(user, "client-key", folder),
        plugin=_plugin(plugin, folder) if plugin else None,
    )


def _named(entries: Any, name: str, what: str) -> Any:
    for entry in entries or ():
        if entry["name"] == name:
            return entry
    raise ValueError(f"there is no {what} {name}")


def _data(entry: Any, name: str, folder: Path) -> bytes:
    """Return what is in the file itself, or in one that it names."""
    if inline := entry.get(f"{name}-data"):
        try:
            return base64.b64decode(inline, validate=False)
        except binascii.Error as error:
            raise ValueError(f"{name}-data is not valid base64") from error
    path = entry.get(name)
    return (folder / path).read_bytes() if path else b""


def _plugin(told: Any, folder: Path) -> Plugin:
    command = str(told["command"])
    return Plugin(
        str(folder / command) if "/" in command else command,
        tuple(map(str, told.get("args") or ())),
        tuple((str(each["name"]), str(each["value"])) for each in told.get("env") or ()),
        str(told.get("apiVersion", Plugin("").version)),
    )


def _own_account() -> Access:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (ACCOUNT / "token").exists():
        raise BackendError(
            "this is not a pod with a service account: name a kubeconfig, or run in such a pod"
        )
    namespace = ACCOUNT / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca=(ACCOUNT / "ca.crt").read_bytes() if (ACCOUNT / "ca.crt").exists() else b"",
        token_file=str(ACCOUNT / "token"),
    )


class Credentials:
    """The token and the certificate to show now."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = access.token
        self._until = 0.0 if access.token_file or access.plugin else float("inf")
        self._pair = (access.cert, access.key)
        self._context: ssl.SSLContext | None = None
        self._lock = asyncio.Lock()

    def forget(self) -> None:
        """Ask again: what was shown was not accepted."""
        if self._access.token_file or self._access.plugin:
            self._until = 0.0

    async def token(self) -> str:
        """Return the token to show; '' without one. Raises BackendError."""
        async with self._lock:
            if monotonic() >= self._until:
                await self._renew()
        return self._token

    async def headers(self) -> dict[str, str]:
        """Return the headers that show the token. Raises BackendError."""
        token = await self.token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def tls(self) -> ssl.SSLContext | None:
        """Return how to connect; None to a server without TLS. Raises BackendError."""
        await self.token()  # a plugin may say a certificate as well
        if not self._access.server.startswith("https:"):
            return None
        if self._context is None:
            self._context = _context(self._access, *self._pair)
        return self._context

    async def _renew(self) -> None:
        if self._access.plugin is not None:
            await self._run(self._access.plugin)
            return
        try:
            self._token = Path(self._access.token_file).read_text().strip()
        except OSError as error:
            why = (error.strerror or "").lower()
            raise BackendError(f"token file {self._access.token_file}: {why}") from error
        self._until = monotonic() + TOKEN_S

    async def _run(self, plugin: Plugin) -> None:
        asked = {"apiVersion": plugin.version, "kind": "ExecCredential",
                 "spec": {"interactive": False}}  # fmt: skip
        env = {**os.environ, **dict(plugin.env),
               "KUBERNETES_EXEC_INFO": msgspec.json.encode(asked).decode()}  # fmt: skip
        try:
            code, said, wrong = await said_by(
                plugin.command, *plugin.args, patience_s=PLUGIN_S, env=env
            )
        except TimeoutError:
            raise EngineAway(f"{plugin.command} did not answer in {PLUGIN_S:.0f} s") from None
        except OSError as error:
            why = (error.strerror or "").lower()
            raise BackendError(f"the login program {plugin.command}: {why}") from error
        if code:
            text = wrong.decode(errors="replace").strip()[-300:]
            raise BackendError(f"the login program {plugin.command} failed: {text}")
        self._take(plugin, said)

    def _take(self, plugin: Plugin, said: bytes) -> None:
        try:
            told = msgspec.json.decode(said, type=_Told).status
        except msgspec.DecodeError as error:
            raise BackendError(f"{plugin.command} printed no credential: {error}") from error
        self._token = told.token
        if told.certificate:
            self._pair = (told.certificate.encode(), told.key.encode())
            self._context = None
        self._until = monotonic() + (_seconds_to(told.until) - EARLY_S if told.until else 3600)


class _Credential(msgspec.Struct, frozen=True):
    token: str = ""
    certificate: str = msgspec.field(default="", name="clientCertificateData")
    key: str = msgspec.field(default="", name="clientKeyData")
    until: str = msgspec.field(default="", name="expirationTimestamp")


class _Told(msgspec.Struct, frozen=True):
    status: _Credential = _Credential()


def _seconds_to(moment: str) -> float:
    try:
        return datetime.fromisoformat(moment).timestamp() - time()
    except ValueError:
        return 0.0


def _context(access: Access, cert: bytes, key: bytes) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=access.ca.decode() if access.ca else None)
        if not access.is_checked:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert:
            with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # nothing reads it else
                file.write(cert + b"\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise BackendError(
            f"a certificate of the kubeconfig cannot be used: {error}"
        ) from error
    return context
