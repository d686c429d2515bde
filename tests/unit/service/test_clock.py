"""The service's clock, with a hand on the machine's."""

from pathlib import Path

from allotment.model.quantity import DAY, HOUR, MINUTE, Instant
from allotment.service.clock import FILE, SteadyClock

EPOCH = 1_800_000_000_000


class Machine:
    """Its wall clock and its uptime; people set the one, nobody the other."""

    def __init__(self, folder: Path) -> None:
        self.wall, self.uptime, self.boot = EPOCH, 7 * HOUR, "first"
        self.folder = folder

    def pass_(self, ms: int) -> None:
        self.wall += ms
        self.uptime += ms

    def reboot(self) -> None:
        self.uptime, self.boot = 0, "second"

    def start(self, last: int = 0, ahead_ms: int = 0) -> SteadyClock:
        clock = SteadyClock(
            self.folder, lambda: self.wall, lambda: self.uptime, lambda: self.boot
        )
        clock.begin(Instant(last), ahead_ms)
        return clock


def test_time_goes_on_evenly_whatever_is_done_to_the_wall_clock(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    clock = machine.start()
    assert clock.now() == clock.wall() == EPOCH
    for step in (-HOUR, 3 * HOUR, -DAY):
        before = clock.now()
        machine.wall += step
        assert clock.now() == before
        machine.pass_(MINUTE)
        assert clock.now() == before + MINUTE
    assert clock.wall() == machine.wall


def test_a_service_that_was_away_knows_how_long_under_one_boot(tmp_path: Path) -> None:
    for step in (-HOUR, HOUR):
        machine = Machine(tmp_path / str(step))
        machine.folder.mkdir()
        last = machine.start().now()
        machine.pass_(10 * MINUTE)
        machine.wall += step
        assert machine.start(last).now() == last + 10 * MINUTE


def test_after_a_boot_the_wall_clock_is_believed_but_never_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    last = machine.start().now()
    machine.reboot()
    machine.pass_(10 * MINUTE)
    clock = machine.start(last, ahead_ms=0)
    assert clock.now() == last + 10 * MINUTE
    machine.boot = "third"
    machine.wall -= HOUR
    assert machine.start(clock.now()).now() == clock.now()


def test_what_the_wall_clock_was_ahead_is_no_time_that_passed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    last = machine.start().now()
    machine.wall += HOUR
    machine.reboot()
    machine.pass_(MINUTE)
    assert machine.start(last, ahead_ms=HOUR).now() == last + MINUTE


def test_a_log_put_back_with_a_later_end_is_gone_on_with(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start()
    clock = machine.start(EPOCH + DAY)
    assert clock.now() == EPOCH + DAY
    machine.pass_(MINUTE)
    assert machine.start(EPOCH + DAY).now() == EPOCH + DAY + MINUTE


def test_a_broken_or_missing_file_is_no_reason_not_to_start(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start()
    for damage in (b"", b"{", b'{"boot": 1}'):
        (tmp_path / FILE).write_bytes(damage)
        assert machine.start().now() == machine.wall
    machine.folder = tmp_path / "not there"
    assert machine.start().now() == machine.wall
