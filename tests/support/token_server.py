"""A server of tokens, as big registries have one, and a registry that believes it.

It knows one identity token, and gives for it, by OAuth2, what lets its user pull.
"""

import base64
import contextlib
import datetime
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from tests.support.registry import Registry

IDENTITY = "an-identity-token"


class TokenServer:
    """Answers grants. `grants` is what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.grants: list[dict[str, str]] = []
        self._key = rsa.generate_private_key(65537, 2048)
        self._certificate = self._certify()
        (folder / "tokens.pem").write_bytes(
            self._certificate.public_bytes(serialization.Encoding.PEM)
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def realm(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _certify(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")])
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        made = x509.CertificateBuilder(name, name, self._key.public_key(), 1)
        made = made.not_valid_before(now - day).not_valid_after(now + day)
        return made.sign(self._key, hashes.SHA256())

    def token(self, grant: dict[str, str]) -> str | None:
        """Return a signed token for a grant; None where it is refused."""
        self.grants.append(grant)
        wanted = ("refresh_token", "refresh_token", IDENTITY)
        if ("refresh_token", grant.get("grant_type"), grant.get("refresh_token")) != wanted:
            return None
        kind, name, actions = grant["scope"].split(":")
        now = int(time.time())
        der = self._certificate.public_bytes(serialization.Encoding.DER)
        header = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        claims = {
            "iss": "tokens", "sub": "ann", "aud": grant["service"], "jti": str(now),
            "iat": now, "nbf": now - 60, "exp": now + 600, "access": access,
        }  # fmt: skip
        text = f"{_part(header)}.{_part(claims)}"
        signed = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_plain(signed)}"


def _part(value: object) -> str:
    return _plain(json.dumps(value).encode())


def _plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _handler(server: TokenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

        def do_GET(self) -> None:
            self._tell(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._tell(server.token(dict(urllib.parse.parse_qsl(body))))

        def _tell(self, token: str | None) -> None:
            answer: dict[str, Any] = {"access_token": token} if token else {"error": "no"}
            data = json.dumps(answer).encode()
            self.send_response(200 if token else 401)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


@contextlib.contextmanager
def believed_by(registry: Registry) -> Iterator[TokenServer]:
    """Have a registry, open until now, ask for the tokens of a server; end that afterwards."""
    server = TokenServer(registry.folder)
    try:
        registry.stop()
        with (registry.folder / "registry.yml").open("a") as settings:
            settings.write(
                f"auth: {{token: {{realm: '{server.realm}', service: images, issuer: tokens, "
                f"rootcertbundle: {registry.folder}/tokens.pem}}}}\n"
            )
        registry.start()
        yield server
    finally:
        server.close()
