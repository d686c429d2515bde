"""An admission webhook of a test's own: it refuses the pods that it is told to refuse."""

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.kubernetes import Kubernetes

NAME = "tests.allotment.io"
BROKEN = "broken"
"""What `refuses` says for a webhook that itself is in trouble."""


@contextlib.contextmanager
def a_webhook(
    kubernetes: Kubernetes, refuses: Callable[[dict[str, Any]], str]
) -> Iterator[None]:
    """Have each new pod looked at; `refuses` returns why it is refused, '' where it is not."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            asked = json.loads(self.rfile.read(size))["request"]
            why = refuses(asked["object"])
            if why == BROKEN:
                self.send_error(500)
                return
            verdict = {"uid": asked["uid"], "allowed": not why, "status": {"message": why}}
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            body = json.dumps({**review, "response": verdict}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = kubernetes.folder
    context.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    where = {
        "url": f"https://127.0.0.1:{server.server_port}/",
        "caBundle": base64.b64encode((folder / "ca.crt").read_bytes()).decode(),
    }
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"]}  # fmt: skip
    hook = {
        "name": NAME, "clientConfig": where, "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 10,
    }  # fmt: skip
    try:
        kubernetes.apply({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME}, "webhooks": [hook],
        })  # fmt: skip
        yield
    finally:
        kubernetes.kubectl(
            "delete", "validatingwebhookconfiguration", NAME, "--ignore-not-found"
        )
        server.shutdown()
        thread.join()
        server.server_close()
