"""How a suspension reads."""

from allotment.model.suspension import Grade, Suspension
from allotment.service.suspension_words import all_suspended_words

OFFLOADED = Suspension(1, Grade.OFFLOADED, (512, 300))


def test_tasks_that_are_alike_are_told_of_once() -> None:
    assert all_suspended_words([(OFFLOADED, 1), (OFFLOADED, 1)]) == [
        "Suspended: it moved its device memory to the host; 512 MiB of each device is kept."
    ]
    assert all_suspended_words([]) == []


def test_each_way_of_standing_still_is_told_of() -> None:
    hows = [
        OFFLOADED,
        Suspension(1, Grade.FROZEN),
        Suspension(1, Grade.DRIVER_CHECKPOINT),
        Suspension(1, Grade.FROZEN),
    ]
    assert all_suspended_words([(how, 1) for how in hows]) == [
        "Suspended: 1 of its tasks: it moved its device memory to the host; 512 MiB of each "
        "device is kept.",
        "Suspended: 2 of its tasks: frozen, with all its device memory.",
        "Suspended: 1 of its tasks: the driver moved its device memory to the host; the "
        "rest was not measured, so all of it counts as kept.",
    ]


def test_of_a_task_without_devices_it_is_not_said_what_became_of_their_memory() -> None:
    assert all_suspended_words([(Suspension(1, Grade.OFFLOADED), 0)]) == ["Suspended: frozen."]
