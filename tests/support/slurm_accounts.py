"""A Slurm that keeps accounts: a real slurmdbd, on a MariaDB of the test's own.

There are two accounts, `research` and `small`, of which `small` may have no job, and qualities
of service: `bounded` gives a job 1700 MiB at most. Root is in both accounts.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.served import free_ports
from tests.support.slurm import TOOLS, Slurm, running

ACCOUNTING = (
    *TOOLS, "slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db", "mariadb",
)  # fmt: skip
DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost=localhost
DbdPort={dbd}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={db}
StorageUser=slurm
StorageLoc=slurm_acct_db
"""
MORE = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
"""
NONE = """\
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
"""
GPUS_COUNTED = """\
USE slurm_acct_db;
INSERT INTO tres_table (creation_time, id, type, name)
  VALUES (1, 1901, 'gres', 'gpumem'), (1, 1902, 'gres', 'gpuutil');
CREATE TRIGGER gpus_counted BEFORE UPDATE ON `allotment-test_step_table` FOR EACH ROW
  SET NEW.tres_usage_in_ave = CONCAT(NEW.tres_usage_in_ave, ',1901={memory},1902={busy}');
"""
LOG = "--innodb-log-file-size=8M"
MANAGED = (
    "add cluster allotment-test",
    "add account research",
    "add account small",
    "add user root account=research",
    "add user root account=small",
    "add qos bounded",
    # Without DenyOnLimit: Slurm takes the job, and never starts it.
    "modify qos bounded set MaxTRESPerJob=mem=1700",
    "modify account small set GrpSubmitJobs=0",
    "modify user root set qos=normal,bounded",
)


class AccountedSlurm(Slurm):
    """A Slurm with slurmdbd."""

    last = ("slurmdbd", "munged", "mariadbd")

    def write(self) -> None:
        """Write the configuration of slurmdbd, too."""
        super().write()
        self.database, dbd = free_ports(2)
        ours = {"folder": self.folder, "dbd": dbd, "db": self.database}
        text = self.conf.read_text()
        assert NONE in text
        self.conf.write_text(text.replace(NONE, MORE.format(**ours)))
        conf = self.folder / "slurmdbd.conf"
        conf.write_text(DBD_CONF.format(**ours))
        conf.chmod(0o600)

    def before_controller(self) -> None:
        """Start the database and slurmdbd, and make the accounts."""
        data = self.folder / "db"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
             "--auth-root-authentication-method=normal", "--skip-test-db", LOG],
            capture_output=True, check=True,
        )  # fmt: skip
        self._start(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={data}", "--user=root",
            "--skip-grant-tables", "--bind-address=127.0.0.1", f"--port={self.database}",
            f"--socket={self.folder}/db.sock", f"--pid-file={self.folder}/db.pid",
            "--innodb-buffer-pool-size=64M", LOG,
        )  # fmt: skip
        self.until(lambda: (self.folder / "db.sock").exists())
        self.start_dbd()
        for words in MANAGED:
            done = self.manage(*words.split())
            assert done.returncode == 0, (words, done.stdout, done.stderr)

    def start_dbd(self) -> None:
        """Start slurmdbd, and wait until it answers."""
        self._start("slurmdbd", "slurmdbd", "-D")
        self.until(lambda: self.manage("show", "cluster").returncode == 0)

    def count_gpus(self, busy: int, memory: int) -> None:
        """Have the accounts say of each step that ends what a Slurm with NVML would say.

        slurmdbd must not run meanwhile. No machine of ours has GPUs; and 22.05 does not count.
        """
        subprocess.run(
            ["mariadb", "--no-defaults", "--user=root", f"--socket={self.folder}/db.sock"],
            input=GPUS_COUNTED.format(busy=busy, memory=memory), text=True, check=True,
        )  # fmt: skip

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `sacctmgr`."""
        return subprocess.run(
            ["sacctmgr", "-inP", *words], env=self.env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def accounted(self, job: str, *fields: str) -> list[dict[str, Any]]:
        """Return what `sacct` has of a job and its steps."""
        said = self.say("sacct", "-nP", "-j", job, f"--format={','.join(fields)}")
        return [dict(zip(fields, line.split("|"), strict=True)) for line in said.splitlines()]


@contextmanager
def a_slurm_with_accounts() -> Iterator[AccountedSlurm]:
    """Start a Slurm with slurmdbd, and end it."""
    folder = Path(tempfile.mkdtemp(prefix="allot-slurm-", dir="/var/tmp"))
    folder.chmod(0o755)
    with running(AccountedSlurm(folder)) as slurm:
        yield slurm
