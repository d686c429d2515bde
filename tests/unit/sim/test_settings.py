"""What `--set` takes, and what it says to what it does not take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND
from allotment.sim.bad import BadScenario
from allotment.sim.settings import (
    BadSetting,
    Settings,
    chosen,
    read_length,
    read_settings,
    write_length,
)

BAD = {
    "round": "--set round: write KEY=VALUE.",
    "rond=5": "--set rond: there is no such setting. Near: round",
    "=3": "--set =3: write KEY=VALUE.",
    "mtbf=Never": "--set mtbf: 'Never' is not a length of time: write 30s, 6min, 1.5h or 2d.",
    "queues=": "--set queues: '' is not a length of time: write 30s, 6min, 1.5h or 2d.",
    "queues=5,": "--set queues: '' is not a length of time",
    "round=0": "--set round: a round is longer than 0.",
    "round=-5s": "--set round: it cannot be negative.",
    "round=x": "--set round: 'x' is not a length of time: write 30s, 6min, 1.5h or 2d.",
    "round=5y": "--set round: '5y' is not a length of time",
    "round=": "--set round: '' is not a length of time",
    "start=1d5h": "--set start: '1d5h' is not a length of time",
    "start=nan": "--set start: 'nan' is not a length of time",
    "start=inf": "--set start: 'inf' is not a length of time",
    "start=1e400": "--set start: '1e400' is not a length of time",
    "start=1e30": "--set start: '1e30' is too long: at most 36525 d.",
    "start=-1s": "--set start: it cannot be negative.",
    "stop=-1": "--set stop: it cannot be negative.",
    "mtbf=-1h": "--set mtbf: it cannot be negative.",
    "lead=-1": "--set lead: it cannot be negative.",
    "first=0": "--set first: it is a length above 0.",
    "within=socket": "--set within=socket: one of node, switch, rack, none.",
    "placing=best": "--set placing=best: one of pack, spread, fgd.",
    "order=Strict": "--set order=Strict: one of strict, skip, easy, conservative, policy.",
    "estimates=guess": "--set estimates=guess: one of exact, noisy, history, limit, predicted.",
    "switch=6min": "--set switch: it must be shorter than a round (6min): otherwise",
    "turns=later": "--set turns=later: one of never, at_once, rounds, policy.",
    "tasks=8": "--set tasks=8: one of node, none.",
    "promote=-1": "--set promote: it cannot be negative.",
    "promote=1.5": "--set promote=1.5: write a whole number or never.",
    "retries=2.5": "--set retries=2.5: write a whole number.",
    "retries=many": "--set retries=many: write a whole number.",
    "noise=x": "--set noise=x: write a number.",
    "noise=.x": "--set noise=.x: write a number.",
    "noise=nan": "--set noise: write a number.",
    "noise=inf": "--set noise: it is at most 10.",
    "noise=-0.1": "--set noise: it cannot be negative.",
    "job_failure=1.5": "--set job_failure: it is a chance, from 0 to 1.",
    "job_failure=nan": "--set job_failure: write a number.",
    "queues=5,3": "--set queues: the limits must ascend from above 0.",
    "queues=5,5": "--set queues: the limits must ascend from above 0.",
    "queues=0,5": "--set queues: the limits must ascend from above 0.",
    "queues=-1,5": "--set queues: the limits must ascend from above 0.",
    "queues=x": "--set queues: 'x' is not a length of time",
    "across_nodes=0": "--set across_nodes: it is a factor, from 0.001 to 1.",
    "across_racks=1.1": "--set across_racks: it is a factor, from 0.001 to 1.",
    "interference=1e-9": "--set interference: it is a factor, from 0.001 to 1.",
}


@pytest.mark.parametrize(("pair", "message"), BAD.items(), ids=BAD)
def test_what_cannot_be_is_refused_by_name(pair: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        read_settings([pair])
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, BadScenario)


def test_without_words_everything_is_plain() -> None:
    assert read_settings([]) == Settings()
    assert chosen(Settings()) == ()


def test_each_key_takes_its_kind() -> None:
    settings = read_settings(
        [
            "round=6min",
            "queues=1h,2h, 1d",
            "noise=0.5",
            "promote=8",
            "within=node",
            " stop =2s ",
        ]
    )
    assert settings.round_ms == 6 * MINUTE
    assert settings.queues == (HOUR, 2 * HOUR, DAY)
    assert settings.noise == 0.5
    assert settings.promote == 8
    assert settings.within == "node"
    assert settings.stop_ms == 2 * SECOND


def test_a_fraction_may_begin_with_its_point() -> None:
    assert read_settings(["job_failure=.3"]).job_failure == 0.3


def test_of_a_key_twice_the_last_counts() -> None:
    assert read_settings(["start=1s", "start=2s"]).start_ms == 2 * SECOND


def test_what_differs_from_the_defaults_is_told() -> None:
    settings = read_settings(["start=2s", "placing=spread", "round=360s"])
    assert chosen(settings) == (("placing", "spread"), ("start", "2s"))


def test_a_value_is_also_read_by_its_old_name() -> None:
    assert read_settings(["estimates=promised"]) == read_settings(["estimates=limit"])


def test_an_unknown_setting_is_told_the_three_nearest() -> None:
    with pytest.raises(BadSetting) as caught:
        read_settings(["zzz=1"])
    said = str(caught.value)
    assert said.startswith("--set zzz: there is no such setting. Near: ")
    assert said.count(",") == 2


@pytest.mark.parametrize(
    "pair",
    ["within=none", "prefer=none", "tasks=none", "order=policy", "turns=policy", "mtbf=never",
     "promote=never", "eviction=tenant"],
)  # fmt: skip
def test_defaults_may_be_called_by_their_word(pair: str) -> None:
    assert read_settings([pair]) == Settings()


CHOICES = {"types": "listed", "estimates": "history", "placing": "fgd", "within": "node"}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "start": st.integers(0, 36_525 * DAY).map(lambda ms: f"{ms}ms"),
            "mtbf": st.integers(0, 10_000).map(lambda hours: f"{hours}h"),
            "queues": st.sets(st.integers(1, 10**9), min_size=1).map(
                lambda limits: ",".join(f"{limit}ms" for limit in sorted(limits))
            ),
            "noise": st.floats(0, 10).map(str),
            "retries": st.integers(0, 99).map(str),
            **{key: st.just(word) for key, word in CHOICES.items()},
        },
    )
)
def test_what_is_told_of_settings_is_what_one_would_write(words: dict[str, str]) -> None:
    settings = read_settings(f"{key}={value}" for key, value in words.items())
    told = [f"{key}={value}" for key, value in chosen(settings)]
    assert read_settings(told) == settings


@given(st.integers(0, 36_525 * DAY))
def test_a_length_is_read_as_it_was_written(ms: int) -> None:
    assert read_length(write_length(ms)) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("5", 5_000), ("5s", 5_000), ("250ms", 250), ("1.5h", 90 * MINUTE), ("2 d", 2 * DAY),
     ("3m", 3 * MINUTE), ("1e3s", 1_000_000), ("0.0004", 0)],
)  # fmt: skip
def test_lengths_of_time(text: str, ms: int) -> None:
    assert read_length(text) == ms


def complaint(*words: str) -> str | None:
    """Return what is said to settings; None when they are taken."""
    try:
        read_settings(words)
    except BadSetting as error:
        return str(error)
    return None


@given(st.text(max_size=12))
def test_any_text_is_a_length_or_is_told_not_to_be(text: str) -> None:
    said = complaint(f"start={text}")
    if said is None:
        assert 0 <= read_length(text.strip()) <= 36_525 * DAY
    else:
        assert said.startswith("--set start: ")


@given(st.lists(st.text(max_size=20), max_size=3))
def test_any_words_are_settings_or_are_told_not_to_be(words: list[str]) -> None:
    said = complaint(*words)
    assert said is None or said.startswith("--set")


@given(st.sampled_from(Settings.__struct_fields__), st.text(max_size=12))
def test_any_value_is_taken_or_is_told_not_to_be(name: str, value: str) -> None:
    key = name.removesuffix("_ms")
    said = complaint(f"{key}={value}")
    assert said is None or key in said
