"""Arrays as a unit, parts of them, and selectors: one request for many jobs."""

import time
from typing import Any

import pytest

from allotment.model.ids import JobId
from tests.integration.api.live import Answer, Live


def steer(live: Live, verb: str, **jobs: Any) -> Answer:
    only_count = jobs.pop("only_count", False)
    return live.ask("POST", f"/v1/jobs:{verb}", {"jobs": jobs, "only_count": only_count})


def states(live: Live) -> dict[int, str]:
    return live.call(
        lambda: {job.id: job.state.value for job in live.service.state.jobs.values()}
    )


def in_state(live: Live, state: str) -> list[int]:
    return [job for job, how in states(live).items() if how == state]


def a_held_array(live: Live, count: int, **changes: Any) -> int:
    body = {"name": "sweep", "tenant": "vision", "command": "fake forever",
            "array": {"count": count}, **changes}  # fmt: skip
    return live.ask("POST", "/v1/jobs?held=true", body).json["id"]


@pytest.mark.parametrize(
    ("ref", "indices"),
    [
        ("{0}", range(10)),
        ("sweep", range(10)),
        ("last", range(10)),
        ("{0}[3]", [3]),
        ("{0}[7-9]", [7, 8, 9]),
        ("sweep[1,5-6]", [1, 5, 6]),
        ("last[held,0]", range(10)),
    ],
)
def test_a_reference_means_an_array_or_a_part_of_it(
    live: Live, ref: str, indices: list[int]
) -> None:
    live.submit()
    first = a_held_array(live, 10)
    answer = steer(live, "cancel", refs=[ref.format(first)])
    assert answer.status == 200, answer
    assert in_state(live, "cancelled") == [first + index for index in indices]
    assert answer.json["count"] == len(indices)


@pytest.mark.parametrize(
    ("ref", "status", "says"),
    [
        ("{0}[10]", 404, "Array 1 has no job that is 10."),
        ("{0}[failed]", 404, "Array 1 has no job that is failed."),
        ("{0}[9-7]", 422, "9-7 goes backwards"),
        ("{0}[x]", 422, "'x' is neither a number nor a state"),
        ("{0}[]", 422, "brackets in the wrong place"),
        ("2[0]", 404, "Job 2 is number 1 of array 1"),
        ("lonely[0]", 404, "Job 11 is not an array"),
    ],
)
def test_a_reference_that_means_nothing_says_why(
    live: Live, ref: str, status: int, says: str
) -> None:
    first = a_held_array(live, 10)
    live.submit(name="lonely")
    answer = steer(live, "cancel", refs=[ref.format(first)])
    assert (answer.status, in_state(live, "cancelled")) == (status, [])
    assert says in answer.json["detail"]


def test_one_job_of_an_array_is_looked_at_by_its_place(live: Live) -> None:
    first = a_held_array(live, 3)
    assert live.get(f"/v1/jobs/{first}[2]")["row"]["id"] == first + 2
    assert live.get("/v1/jobs/sweep[1]")["row"]["array"] == {
        "id": first, "index": 1, "size": 3,
    }  # fmt: skip
    answer = live.ask("GET", "/v1/jobs/sweep")
    assert (answer.status, answer.json["code"]) == (409, "ambiguous_job")
    assert answer.json["hint"] == f"Name one: {first}[0]."


def test_of_many_jobs_those_a_verb_is_not_for_are_left_and_counted(live: Live) -> None:
    first = a_held_array(live, 6)
    steer(live, "cancel", refs=[f"{first}[0-1]"])
    answer = steer(live, "release", refs=[str(first)]).json
    assert (answer["count"], answer["left"]) == (4, {"cancelled": 2})
    answer = steer(live, "release", refs=[f"{first}[0-1]"])
    assert answer.status == 409
    assert answer.json["detail"] == "None of the chosen jobs is one to release: 2 cancelled."
    alone = steer(live, "hold", refs=[f"{first}[0]"]).json
    assert alone["refused"][0]["code"] == "wrong_state"


def test_counting_does_nothing(live: Live) -> None:
    first = a_held_array(live, 5)
    answer = steer(live, "cancel", refs=[str(first)], only_count=True).json
    assert (answer["count"], answer["ids"]) == (5, [[first, first + 4]])
    assert in_state(live, "held") == list(range(first, first + 5))


def test_cancelling_a_large_array_is_one_request_and_one_commit(live: Live) -> None:
    first = a_held_array(live, 10_000)
    commits = live.call(lambda: live.service.pipeline.telemetry.commits.count)
    began = time.perf_counter()
    answer = steer(live, "cancel", refs=[str(first)])
    took = time.perf_counter() - began
    assert answer.json["count"] == 10_000
    assert len(in_state(live, "cancelled")) + _gone(live) == 10_000
    # One for the cancellation, one for what leaves memory afterwards.
    assert live.call(lambda: live.service.pipeline.telemetry.commits.count) - commits <= 3
    assert took < 20, took  # 0.7 s, ten times that on a machine in trouble


def _gone(live: Live) -> int:
    return 10_000 - len(states(live))


def test_what_failed_of_an_array_is_retried_with_its_indices(live: Live) -> None:
    body = {"name": "x", "tenant": "vision", "command": "fake 0 exit 1", "array": {"count": 5}}
    first = live.ask("POST", "/v1/jobs", body).json["id"]
    for job in range(first, first + 5):
        live.wait_for(job, "failed")
    made = steer(live, "retry", refs=[f"{first}[1,3-4]"]).json["made"]
    new = made[0][0]
    assert made == [[new, new + 2]]
    slices = [live.service.state.jobs[JobId(new + place)].spec.array for place in range(3)]
    assert [(a.index, a.size, a.parent, a.members) for a in slices if a] == [
        (1, 5, new, 3), (3, 5, new, 3), (4, 5, new, 3),
    ]  # fmt: skip
    names = [live.get(f"/v1/jobs/{new}[{index}]")["row"]["name"] for index in (1, 3, 4)]
    assert names == ["x.1", "x.3", "x.4"]
    assert live.ask("GET", f"/v1/jobs/{new}[0]").status == 404


def test_only_what_did_not_succeed_is_retried(live: Live) -> None:
    job = live.submit("fake 0.01")
    live.wait_for(job, "succeeded")
    answer = steer(live, "retry", refs=[str(job)])
    assert answer.status == 409
    assert "succeeded; only a job that failed" in answer.json["detail"]


def test_what_was_cancelled_is_retried_only_if_it_is_named(live: Live) -> None:
    first = a_held_array(live, 3)
    steer(live, "cancel", refs=[str(first)])
    assert steer(live, "retry", refs=[str(first)]).status == 409
    assert steer(live, "retry", refs=[f"{first}[cancelled]"]).json["count"] == 3


def test_an_array_is_one_row_with_its_states(live: Live) -> None:
    lonely = live.submit(name="lonely")
    first = a_held_array(live, 4)
    steer(live, "cancel", refs=[f"{first}[0]"])
    rows = live.get("/v1/jobs?arrays=true")["items"]
    assert [(row["id"], row["name"]) for row in rows] == [(first, "sweep"), (lonely, "lonely")]
    assert rows[0]["counts"] == {"cancelled": 1, "held": 3}
    assert rows[0]["state"] == "held"
    assert [row["id"] for row in live.get(f"/v1/jobs?ref={first}[2-3]")["items"]] == [
        first + 3, first + 2,
    ]  # fmt: skip


def test_rows_of_arrays_count_what_left_memory_and_come_in_pages(live: Live) -> None:
    arrays = [a_held_array(live, 5) for _ in range(3)]
    for first in arrays[:2]:
        steer(live, "cancel", refs=[str(first)])
    live.call(lambda: _archive_all(live))
    steer(live, "cancel", refs=[f"{arrays[2]}[0-1]"])
    live.call(lambda: _archive_all(live))
    seen: list[tuple[int, dict[str, int]]] = []
    before = ""
    while True:
        page = live.get(f"/v1/jobs?arrays=true&finished=true&limit=1{before}")
        seen += [(row["id"], row["counts"]) for row in page["items"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert seen == [
        (arrays[2], {"cancelled": 2, "held": 3}),
        (arrays[1], {"cancelled": 5}),
        (arrays[0], {"cancelled": 5}),
    ]
    again = steer(live, "retry", refs=[f"{arrays[0]}[cancelled]"]).json
    assert again["count"] == 5


def _archive_all(live: Live) -> None:
    """Let everything finished leave memory, as time and others' jobs would."""
    live.service.state.config = _keeping(live, 0)
    live.service.pipeline._archive()


def _keeping(live: Live, jobs: int) -> Any:
    import msgspec

    config = live.service.state.config
    limits = msgspec.structs.replace(config.limits, keep_finished=jobs)
    return msgspec.structs.replace(config, limits=limits)


def test_how_the_chosen_stand_is_told(live: Live) -> None:
    first = a_held_array(live, 4)
    steer(live, "cancel", refs=[f"{first}[1]"])
    told = live.ask("POST", "/v1/jobs:choose", {"refs": [str(first)]}).json
    assert told["states"] == {"held": 3, "cancelled": 1}
    assert told["going_on"] == [[first, first], [first + 2, first + 3]]


def test_jobs_are_found_by_their_labels(live: Live) -> None:
    one = live.submit(labels={"team": "a", "run": 7})
    two = live.submit(labels={"team": "b"})
    live.submit()
    for label, jobs in (("team=a", [one]), ("team", [two, one]), ("run=7&label=team=b", [])):
        rows = live.get(f"/v1/jobs?label={label}")["items"]
        assert [row["id"] for row in rows] == jobs
    assert live.get(f"/v1/jobs/{one}")["row"]["labels"] == {"team": "a", "run": "7"}
    assert live.get(f"/v1/jobs/{one}")["spec"]["labels"] == {"team": "a", "run": "7"}
    steer(live, "cancel", labels=["team"], mine=True)
    for job in (one, two):
        live.wait_for(job, "cancelled")


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"a b": "c"}, "cannot be the key of a label"),
        ({"x" * 64: "c"}, "cannot be the key of a label"),
        ({"a": "c" * 129}, "129 characters, and 128 are accepted"),
        ({"a": "\x1b[31m"}, "control character"),
        ({"a": ["b"]}, "must be a text"),
        ({f"k{i}": "v" for i in range(33)}, "33 labels, and 32 are accepted"),
    ],
)
def test_labels_have_bounds(live: Live, labels: dict[str, object], says: str) -> None:
    body = {"name": "x", "tenant": "vision", "command": "x", "labels": labels}
    answer = live.ask("POST", "/v1/jobs", body)
    assert answer.status == 422
    assert says in answer.json["detail"]


def test_a_note_is_kept_until_it_is_taken_away(live: Live) -> None:
    job = live.submit()
    noted = live.ask("POST", f"/v1/jobs/{job}:note", {"text": "odd\nloss"}).json
    assert (noted["note"], noted["noted_by"]) == (
        "odd\nloss",
        live.get("/v1/jobs/last")["row"]["user"],
    )
    told = [event["text"] for event in live.get(f"/v1/jobs/{job}/events")]
    assert "noted: odd\nloss" in told
    assert live.ask("POST", f"/v1/jobs/{job}:note", {"text": ""}).json["note"] == ""
    for text in ("x" * 1001, "\x1b[2J"):
        answer = live.ask("POST", f"/v1/jobs/{job}:note", {"text": text})
        assert (answer.status, answer.json["code"]) == (422, "bad_request")


def test_a_grid_makes_a_job_for_each_combination(live: Live) -> None:
    body = {"name": "sweep", "tenant": "vision", "command": "fake {s}",
            "grid": {"lr": ["0.1", "0.01"], "s": ["9", "8"]}}  # fmt: skip
    made = live.ask("POST", "/v1/jobs", body).json
    assert len(made["ids"]) == 4
    row = live.get(f"/v1/jobs/{made['id']}[2]")
    assert row["row"]["array"] == {
        "id": made["id"], "index": 2, "size": 4, "params": {"lr": "0.01", "s": "9"},
    }  # fmt: skip
    assert row["spec"]["roles"]["main"]["command"] == "fake 9"
    assert row["spec"]["env"] == {"lr": "0.01", "s": "9"}
