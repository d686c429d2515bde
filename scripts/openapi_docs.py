"""Write docs/openapi.json: the HTTP API as the service describes it."""

import json
from pathlib import Path
from typing import cast

from allotment.api.app import create_app
from allotment.api.http_stats import HttpStats
from allotment.service.service import Service

TARGET = Path(__file__).parent.parent / "docs" / "openapi.json"


def text() -> str:
    """Return the description. It depends on no running service."""
    app = create_app(cast("Service", None), lambda: None, HttpStats())
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
