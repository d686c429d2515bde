"""What Prometheus is told, read as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.api.live import Live

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(live: Live) -> Samples:
    answer = live.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: Samples = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_jobs_devices_and_waits_are_counted(live: Live) -> None:
    done = live.submit("fake 0.01")
    live.wait_for(done, "succeeded")
    running = live.submit("fake forever", resources={"gpu": 2})
    live.wait_for(running, "running")
    live.ask("POST", "/v1/jobs?held=true", {"name": "h", "tenant": "nlp", "command": "true"})
    samples = scraped(live)
    assert of(samples, "allot_jobs", tenant="vision", state="running") == 1
    assert of(samples, "allot_jobs", tenant="nlp", state="held") == 1
    assert of(samples, "allot_jobs", tenant="nlp", state="queued") == 0
    assert of(samples, "allot_jobs_finished_total", tenant="vision", state="succeeded") == 1
    where = {"node": "n0", "type": "A100", "virtual": "true"}
    assert of(samples, "allot_devices", **where, state="used") == 2
    assert of(samples, "allot_devices", **where, state="free") == 6
    assert of(samples, "allot_nodes", node="n0", state="ready") == 1
    assert of(samples, "allot_wait_seconds_count") == 2
    assert of(samples, "allot_wait_seconds_bucket", le="+Inf") == 2
    assert of(samples, "allot_decisions_total", kind="JobSubmitted") == 3
    assert of(samples, "allot_commit_seconds_count") >= 3
    assert of(samples, "allot_cycle_seconds_count") >= 1
    assert of(samples, "allot_ready") == 1


def test_requests_are_timed_by_route_and_refusals_by_code(live: Live) -> None:
    for _ in range(3):
        live.ask("GET", "/v1/jobs/nobody")
    live.ask("POST", "/v1/jobs", b"nonsense")
    live.submit("fake forever")
    live.ask("GET", "/no/such/path")
    live.ask("GET", "/v1/jobs", headers={"Origin": "http://evil.example"})
    samples = scraped(live)
    route = "/v1/jobs/{ref}"
    assert of(samples, "allot_http_seconds_count", method="GET", route=route) == 3
    assert of(samples, "allot_http_answers_total", method="GET", route=route, status="404") == 3
    for status in ("201", "422"):
        labels = {"method": "POST", "route": "/v1/jobs", "status": status}
        assert of(samples, "allot_http_answers_total", **labels) == 1
    assert of(samples, "allot_refusals_total", code="no_such_job") == 3
    assert of(samples, "allot_refusals_total", code="bad_spec") == 1
    assert of(samples, "allot_refusals_total", code="not_found") == 1
    assert of(samples, "allot_refusals_total", code="forbidden") == 1
    assert not any("/no/such/path" in value for _, labels in samples for _, value in labels)
