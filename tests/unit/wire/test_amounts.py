"""Amounts as people write them."""

import pytest

from allotment.model.quantity import DAY, GIB, HOUR, MIB, MINUTE, SECOND, TIB
from allotment.wire.amiss import Amiss
from allotment.wire.amounts import (
    read_cpu,
    read_duration,
    read_duration_or_none,
    read_gpu,
    read_size,
    read_size_or_none,
    read_truth,
    read_whole,
    write_duration,
    write_milli,
    write_size,
)


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("8GiB", 8 * GIB),
        ("8Gi", 8 * GIB),
        ("8 GiB", 8 * GIB),
        ("8gib", 8 * GIB),
        ("512M", 512_000_000),
        ("8G", 8_000_000_000),
        ("8GB", 8_000_000_000),
        ("1.5GiB", 3 * GIB // 2),
        (".5MiB", MIB // 2),
        ("2TiB", 2 * TIB),
        ("1k", 1000),
        ("123B", 123),
        ("0.1KiB", 103),  # 102.4: a fraction of a byte counts as a whole one
        ("1024PiB", 1 << 60),
    ],
)
def test_memory_is_read_exactly(written: str, amount: int) -> None:
    assert read_size(written) == amount


@pytest.mark.parametrize("nothing", [0, 0.0, "0", "0GiB", "0B"])
def test_no_disk_needs_no_unit(nothing: object) -> None:
    assert read_size_or_none(nothing) == 0


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        (8, "8 has no unit", "write 8MiB or 8GiB"),
        ("8", "8 has no unit", "write 8MiB or 8GiB"),
        (1.5, "1.5 has no unit", "1.5GiB"),
        (-1, "must not be negative", "8GiB"),
        ("-1GiB", "must not be negative", "8GiB"),
        ("8g", "could be taken in two ways", "8GiB (times 1024) or 8GB (times 1000)"),
        ("512m", "could be taken in two ways", "512MiB"),
        ("8XiB", "no unit `XiB`", "GiB"),
        ("lots", "must be an amount with a unit, not 'lots'", "8GiB"),
        ("8GiBit", "must be an amount with a unit", "8GiB"),
        ("1e3GiB", "must be an amount with a unit", "8GiB"),
        (True, "must be an amount with a unit, not true", "8GiB"),
        (None, "must be an amount with a unit, not nothing", "8GiB"),
        ([], "not a list", "8GiB"),
        ("1025PiB", "more than 1 EiB", "check the unit"),
        ("9" * 30 + "TiB", "more than 1 EiB", "check the unit"),
        pytest.param("9" * 9000, "must be an amount with a unit", "8GiB", id="long"),
        pytest.param(10**5000, "a number of more than 38 digits", "add a unit", id="huge"),
        (float("nan"), "has no unit", ""),
        ("0GiB", "must be more than 0", "512MiB"),
    ],
)
def test_no_amount_of_memory(written: object, message: str, hint: str) -> None:
    with pytest.raises(Amiss) as caught:
        read_size(written)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("amount", "written"),
    [(0, "0B"), (1, "1B"), (1000, "1000B"), (1024, "1KiB"), (1536 * MIB, "1536MiB")],
)
def test_memory_is_written_in_the_largest_exact_unit(amount: int, written: str) -> None:
    assert write_size(amount) == written


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("90s", 90 * SECOND),
        ("2h30m", 2 * HOUR + 30 * MINUTE),
        ("2h 30min", 2 * HOUR + 30 * MINUTE),
        ("1d", DAY),
        ("250ms", 250),
        ("1.5h", 90 * MINUTE),
        (90, 90 * SECOND),
        (0.1, 100),
        ("90", 90 * SECOND),
        ("0.0001s", 1),
    ],
)
def test_a_length_of_time_is_read_exactly(written: object, length: int) -> None:
    assert read_duration(written) == length


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("soon", "must be a length of time, not 'soon'"),
        ("", "must be a length of time"),
        ("2h30", "must be a length of time"),
        ("h", "must be a length of time"),
        (-1, "must not be negative"),
        (float("inf"), "must be a finite number, not inf"),
        (float("nan"), "must be a finite number, not nan"),
        (1e300, "more than a hundred years"),
        ("40000d", "more than a hundred years"),
        (True, "must be a length of time, not true"),
        pytest.param("1s" * 1000, "must be a length of time", id="long"),
        (0, "must be more than 0"),
    ],
)
def test_no_length_of_time(written: object, message: str) -> None:
    with pytest.raises(Amiss, match=message):
        read_duration(written)


def test_a_length_of_nothing_where_that_makes_sense() -> None:
    assert read_duration_or_none("0s") == 0
    assert write_duration(0) == "0s"


@pytest.mark.parametrize(
    ("length", "written"),
    [(DAY + 2 * HOUR, "1d2h"), (90 * SECOND, "1m30s"), (60_500, "60500ms")],
)
def test_a_length_of_time_is_written_as_people_do(length: int, written: str) -> None:
    assert write_duration(length) == written


@pytest.mark.parametrize(
    ("written", "milli"),
    [(4, 4000), (0.5, 500), ("500m", 500), ("0.5", 500), ("2", 2000), (0.001, 1), (0.29, 290)],
)
def test_cpus_are_read_into_thousandths(written: object, milli: int) -> None:
    assert read_cpu(written) == milli


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0, "must be more than 0"),
        (-2, "must not be negative"),
        (0.0005, "finer than a thousandth"),
        (1e9, "more than 1,000,000"),
        pytest.param(10**5000, "more than 38 digits CPUs for one task", id="huge"),
        (float("inf"), "finite"),
        ("many", "must be a number of CPUs, not 'many'"),
        ("-1m", "must be a number of CPUs"),
        (False, "must be a number of CPUs, not false"),
    ],
)
def test_no_number_of_cpus(written: object, message: str) -> None:
    with pytest.raises(Amiss, match=message):
        read_cpu(written)


@pytest.mark.parametrize(
    ("written", "milli"), [(0, 0), (1, 1000), (0.5, 500), (8, 8000), ("0.25", 250), (2.0, 2000)]
)
def test_gpus_are_whole_or_part_of_one(written: object, milli: int) -> None:
    assert read_gpu(written) == milli


def test_one_and_a_half_gpus_are_no_request() -> None:
    with pytest.raises(Amiss, match="neither whole nor part") as caught:
        read_gpu(1.5)
    assert caught.value.hint == "write 1 or 2, or less than 1 to share a GPU"


def test_thousandths_are_written_without_a_fraction_where_there_is_none() -> None:
    assert write_milli(2000) == 2
    assert isinstance(write_milli(2000), int)
    assert write_milli(500) == 0.5


@pytest.mark.parametrize(
    ("value", "message", "hint"),
    [
        ("4", "must be a whole number, not '4'", "write it without quotes"),
        (4.0, "must be a whole number, not 4.0", "write it without a decimal point"),
        (4.5, "must be a whole number, not 4.5", ""),
        (True, "must be a whole number, not true", ""),
        (0, "must be at least 1, not 0", ""),
        (11, "11 is more than the 10 that are accepted", ""),
    ],
)
def test_no_whole_number(value: object, message: str, hint: str) -> None:
    with pytest.raises(Amiss) as caught:
        read_whole(value, 1, 10)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_yes_is_not_true() -> None:
    with pytest.raises(Amiss, match="must be true or false, not 'yes'"):
        read_truth("yes")
