"""A task of an attempt → what a backend needs to run it. Pure: no clock, no files."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from allotment.engine.records import AttemptRecord, JobRecord
from allotment.model.cluster import OF_MIG, Node
from allotment.model.events import Phase
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.later import Known, characters_to_fill, fill
from allotment.model.ledger import Slot
from allotment.model.port_layout import has_tf_roles, ports_of, task_port
from allotment.model.quantity import DEVICE, MIB, Millis
from allotment.model.spec import NEVER, ArraySlice, Checkpoint, Dialect, JobSpec, Mpi, TaskRole
from allotment.model.tenancy import Config
from allotment.service.batch.files import batch_argv, batch_path, hosts_path, tools_folder
from allotment.service.batch.variables import batch_env
from allotment.service.operator_env import known_later, mpi_hosts, operator_env, slots_of
from allotment.service.ports import (
    Binding,
    DataMount,
    GangLaunch,
    Identity,
    ImageWish,
    TaskLaunch,
)

Env = dict[str, str]
Nodes = Mapping[NodeId, Node]


USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


WORKING = "working"


class Folders(msgspec.Struct, frozen=True):
    """Where the service keeps what belongs to jobs, below its state folder."""

    root: str
    kept: str = ""
    """Where environments, data and code are, if that is not below `root`."""

    def outputs(self, job: JobId, spec: JobSpec) -> str:
        """Return the folder with one sub-folder for each attempt."""
        base = spec.output_dir or f"{self.root}/outputs"
        return f"{base}/{job}"

    def output(self, job: JobId, spec: JobSpec, attempt: AttemptNo) -> str:
        return f"{self.outputs(job, spec)}/attempt-{attempt}"

    def checkpoints(self, job: JobId, spec: JobSpec) -> str:
        """Return the folder that is kept from one attempt to the next."""
        if spec.checkpoint is not None and spec.checkpoint.dir:
            return spec.checkpoint.dir
        return f"{self.root}/checkpoints/{job}"

    def checkpoint_file(self, job: JobId, spec: JobSpec) -> str:
        """Return the file that a job replaces, as a whole, to report a checkpoint."""
        return f"{self.checkpoints(job, spec)}/.allot-checkpoint.json"

    def progress_file(self, job: JobId, spec: JobSpec) -> str:
        """Return the file of a job's progress; several may share the folder."""
        return f"{self.checkpoints(job, spec)}/.allot-progress-{job}.json"

    def attempt(self, job: JobId, attempt: AttemptNo) -> str:
        """Return the folder of what Allotment writes for the tasks of one attempt."""
        return f"{self.root}/attempts/{job}/{attempt}"

    def working(self) -> str:
        """Return the folder of the working folders of jobs that took code along."""
        return f"{self.kept or self.root}/{WORKING}"

    def code(self, job: JobId, attempt: AttemptNo) -> str:
        """Return the working folder of one attempt of such a job."""
        return f"{self.working()}/{job}/attempt-{attempt}"

    def environment(self, key: str) -> str:
        """Return where an environment is that was built."""
        return f"{self.kept or self.root}/environments/made/{key}"

    def pythons(self) -> str:
        """Return the folder of the Pythons that were fetched for environments."""
        return f"{self.kept or self.root}/environments/pythons"

    def version(self, dataset: str, digest: str) -> str:
        """Return where a version of a dataset is laid out."""
        return f"{self.kept or self.root}/data/{dataset}/trees/{digest}"

    def size_file(self, job: JobId, attempt: AttemptNo) -> str:
        """Return the file that has the present number of tasks of an elastic gang."""
        return f"{self.attempt(job, attempt)}/tasks"

    def hostfile(self, job: JobId, attempt: AttemptNo) -> str:
        return f"{self.attempt(job, attempt)}/hostfile"


class Account(msgspec.Struct, frozen=True):
    """The submitting user as the host knows it. `identity` is None when tasks run as us."""

    name: str
    home: str
    shell: str = "/bin/sh"
    identity: Identity | None = None


def gang_launch(  # noqa: PLR0913 - all that a request is made of
    job: JobRecord,
    keys: Sequence[TaskKey],
    config: Config,
    nodes: Nodes,
    folders: Folders,
    account: Account,
    *,
    at_barrier: bool,
    phases: tuple[Phase, ...] = (),
    data: tuple[DataMount, ...] = (),
    tracked: Mapping[str, str] = {},
) -> GangLaunch:
    """Return the request to start some tasks of the present attempt, or all of them.

    `tracked` are the variables that say where its experiments are tracked.
    """
    attempt = job.attempts[-1]
    spec = job.running_as
    output = folders.output(job.id, spec, attempt.no)
    own = folders.attempt(job.id, attempt.no)
    tools = tools_folder(folders.root) if spec.batch is not None else ""
    code = folders.code(job.id, attempt.no) if spec.code is not None else ""
    begins_in = str(PurePosixPath(code, spec.workdir)) if code else spec.workdir
    return GangLaunch(
        tasks=tuple(_task_launch(job, key, nodes, folders, account, tracked) for key in keys),
        workdir=begins_in or spec.code_dir or output,
        identity=account.identity,
        read_only=tuple(
            path
            for path in (
                spec.data_dir,
                spec.code_dir,
                own,
                tools,
                *_kept(spec, folders),
            )
            if path
        ),
        writable=(output, folders.checkpoints(job.id, spec), *([code] if code else [])),
        at_barrier=at_barrier,
        hold_on_failure_ms=spec.hold_on_failure_ms,
        log_bytes=config.limits.task_log_bytes,
        pids=config.limits.task_pids,
        limit_ms=_limit_ms(spec),
        warning=_warning(spec),
        image=spec.image,
        labels=(("tenant", spec.tenant), ("queue", spec.queue), ("user", job.owner.user)),
        image_wish=image_wish(spec, account, begins_in) if spec.image else None,
        named=frozenset(name for name, _ in (*spec.env, *spec.secrets)),
        mpi=spec.mpi,
        hosts=mpi_hosts(job, nodes),
        phases=phases,
        data=data,
        code=code,
        packages=_packages(spec, folders),
        kept=_kept(spec, folders),
        # Of a gang none: a rank whose memory is away makes the calls of the others hang.
        by_driver=bool(spec.checkpoint and spec.checkpoint.driver and len(attempt.slots) == 1),
    )


def offered_launch(
    job: JobRecord, keys: Sequence[TaskKey], nodes: Nodes, *, at_barrier: bool
) -> GangLaunch:
    """Return the request to put tasks in their places that others made."""
    attempt, spec = job.attempts[-1], job.running_as
    tasks: list[TaskLaunch] = []
    for key in keys:
        role, number = spec.role_of(key.index)
        binding = binding_of(attempt.slots[key.index], nodes)
        offered = spec.offered[key.index]
        name = f"{role.name}.{number}"
        tasks.append(TaskLaunch(key, name, binding, (), (), role.resources, offered))
    return GangLaunch(tuple(tasks), workdir="", at_barrier=at_barrier)


def image_wish(spec: JobSpec, account: Account, begins_in: str = "") -> ImageWish:
    """Return a job's image and the user that wants to use it."""
    return ImageWish(
        spec.image,
        account.name,
        account.home,
        account.shell,
        account.identity,
        begins_in=begins_in or spec.workdir or spec.code_dir,
        engine=spec.engine,
    )


def _task_launch(
    job: JobRecord,
    key: TaskKey,
    nodes: Nodes,
    folders: Folders,
    account: Account,
    tracked: Mapping[str, str],
) -> TaskLaunch:
    attempt, spec = job.attempts[-1], job.running_as
    role, number = spec.role_of(key.index)
    own = folders.attempt(job.id, attempt.no)
    argv = _argv(spec, role, key.index, batch_argv(folders.root, own))
    known = _known(job, key.index, nodes, folders)
    return TaskLaunch(
        key=key,
        name=f"{role.name}.{number}",
        binding=binding_of(attempt.slots[key.index], nodes),
        argv=_led(spec, folders, tuple(fill(word, known) for word in argv)),
        env=tuple(sorted(task_env(job, key.index, nodes, folders, account, tracked).items())),
        resources=role.resources,
    )


def binding_of(slot: Slot, nodes: Nodes) -> Binding:
    """Return the node and devices of a slot as its engine knows them."""
    node = nodes[slot.node]
    counted = Counter(each.type for each in node.devices if each.index in slot.devices)
    return Binding(node.name, slot.devices, tuple(sorted(counted.items())), node.engine)


def _warning(spec: JobSpec) -> tuple[str, Millis]:
    how = spec.checkpoint or Checkpoint()
    return how.signal, how.grace_ms


def _limit_ms(spec: JobSpec) -> Millis:
    """Return for how long a task runs at most, its grace included; 0 without a limit."""
    if spec.max_run_ms == NEVER:
        return Millis(0)
    return Millis(spec.max_run_ms + (spec.checkpoint or Checkpoint()).grace_ms)


def _argv(
    spec: JobSpec, role: TaskRole, index: TaskIndex, script: tuple[str, ...]
) -> tuple[str, ...]:
    if spec.mpi is Mpi.MPIRUN and index > 0:
        return ("sleep", "infinity")  # Until the ranks have ended that the first starts here.
    return argv_of(role) if spec.batch is None else script


def argv_of(role: TaskRole) -> tuple[str, ...]:
    """Return the argument list: a shell line goes to the shell as it is.

    It is empty where the image has a command that only its engine knows.
    """
    if not role.command:
        return ()
    if isinstance(role.command, str):
        return ("/bin/sh", "-c", role.command)
    return role.command


def task_env(
    job: JobRecord,
    index: TaskIndex,
    nodes: Nodes,
    folders: Folders,
    account: Account,
    tracked: Mapping[str, str] = {},
) -> Env:
    """Return the whole environment of a task. The user's variables win, except over ALLOT_*."""
    attempt = job.attempts[-1]
    spec = job.running_as
    return {
        "PATH": USUAL_PATH,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        **(_rendezvous(spec, attempt, index, nodes) if spec.batch is None else {}),
        **_devices(attempt, index, nodes),
        **_nics(attempt, index, nodes),
        **(_tf_config(spec, attempt, index, nodes) if has_tf_roles(spec) else {}),
        **(_classic(job, index, nodes, account) if spec.dialect is Dialect.CLASSIC else {}),
        **operator_env(job, index, nodes, folders.hostfile(job.id, attempt.no)),
        **tracked,
        **_of_job(job, index, nodes, folders),
        **dict(spec.secrets),
        **_of_packages(spec, folders),
        **_own(job, index, nodes, folders),
        **(_of_script(job, nodes, folders, account) if spec.batch is not None else {}),
    }


def _of_job(job: JobRecord, index: TaskIndex, nodes: Nodes, folders: Folders) -> Env:
    """Return the variables of a job as a task has them."""
    known = _known(job, index, nodes, folders)
    return {name: fill(value, known) for name, value in job.running_as.env}


def _known(job: JobRecord, index: TaskIndex, nodes: Nodes, folders: Folders) -> Known | None:
    """Return what tells a thing that texts of a job may name; None where they name none."""
    attempt, spec = job.attempts[-1], job.running_as
    if not characters_to_fill(spec):
        return None
    hosts = folders.hostfile(job.id, attempt.no)
    given = {
        **_rendezvous(spec, attempt, index, nodes),
        **_devices(attempt, index, nodes),
        **operator_env(job, index, nodes, hosts),
    }
    return known_later(job, index, nodes, given)


def hostfile(spec: JobSpec, attempt: AttemptRecord, nodes: Nodes) -> str:
    """Return the MPI host file: a line for each node, with as many slots as it has tasks."""
    counts: dict[str, int] = {}
    for index, slot in enumerate(attempt.slots[: attempt.staying]):
        address = nodes[slot.node].address
        if slots := slots_of(spec, index):
            counts[address] = counts.get(address, 0) + slots
    return "".join(f"{address} slots={count}\n" for address, count in counts.items())


# ── parts of the environment ────────────────────────────────────────────────────────────


def _of_script(job: JobRecord, nodes: Nodes, folders: Folders, account: Account) -> Env:
    """What its batch system would tell a script, and where its programs are.

    It gets no rank: it runs once, and what it starts would take itself for one task of one.
    """
    spec, attempt = job.running_as, job.attempts[-1]
    given = dict(spec.env) | dict(spec.secrets)
    own = folders.attempt(job.id, attempt.no)
    tools = batch_path(folders.root, spec.dialect)
    hosts = {"LSB_DJOB_HOSTFILE": hosts_path(own)} if spec.dialect is Dialect.LSF else {}
    return {
        **hosts,
        "PATH": f"{tools}:{given.get('PATH', USUAL_PATH)}",
        "MASTER_ADDR": nodes[attempt.slots[0].node].address,
        "MASTER_PORT": str(attempt.port),
        **batch_env(job, nodes, account.name),
    }


def _rendezvous(spec: JobSpec, attempt: AttemptRecord, index: int, nodes: Nodes) -> Env:
    """What torch.distributed, Horovod and the like look for."""
    mine = attempt.slots[index].node
    order = list(dict.fromkeys(slot.node for slot in attempt.slots))
    here = [i for i, slot in enumerate(attempt.slots) if slot.node == mine]
    return {
        "MASTER_ADDR": nodes[attempt.slots[0].node].address,
        "MASTER_PORT": str(attempt.port),
        "RANK": str(index),
        "WORLD_SIZE": str(len(attempt.slots)),
        "LOCAL_RANK": str(here.index(index)),
        "LOCAL_WORLD_SIZE": str(len(here)),
        "NODE_RANK": str(order.index(mine)),
        "NNODES": str(len(order)),
    }


def _devices(attempt: AttemptRecord, index: int, nodes: Nodes) -> Env:
    """Which devices the vendors' libraries may show; none at all for a task without any.

    Where MIG divides some, our indexes are not those of these libraries: names are.
    """
    slot = attempt.slots[index]
    names = {int(each.index): each.uuid for each in nodes[slot.node].devices}
    if not any(name.startswith(OF_MIG) for name in names.values()):
        names = {}
    visible = ",".join(names.get(device) or str(device) for device in slot.devices)
    return {
        "CUDA_VISIBLE_DEVICES": visible,
        "NVIDIA_VISIBLE_DEVICES": visible or "none",
        "ROCR_VISIBLE_DEVICES": visible,
        "HIP_VISIBLE_DEVICES": visible,
    }


def _nics(attempt: AttemptRecord, index: int, nodes: Nodes) -> Env:
    """Which network cards NCCL and UCX are to use: those nearest to the task's devices."""
    slot = attempt.slots[index]
    names = nodes[slot.node].nics_of(slot.devices)
    if not names:
        return {}
    return {
        "NCCL_IB_HCA": "=" + ",".join(names),  # `=`: these and not whose names begin so.
        "UCX_NET_DEVICES": ",".join(f"{name}:1" for name in names),
    }


def _tf_config(spec: JobSpec, attempt: AttemptRecord, index: int, nodes: Nodes) -> Env:
    cluster: dict[str, list[str]] = {}
    for i, slot in enumerate(attempt.slots):
        role, _ = spec.role_of(i)
        address = f"{nodes[slot.node].address}:{task_port(spec, attempt.port, i)}"
        cluster.setdefault(role.name, []).append(address)
    role, number = spec.role_of(index)
    config = {"cluster": cluster, "task": {"type": role.name, "index": number}}
    return {"TF_CONFIG": json.dumps(config)}


def _data(spec: JobSpec) -> Env:
    """Where its data are: a folder of the machine, or datasets by their names."""
    found = {f"ALLOT_DATA_{_word(use.name)}": use.at for use in spec.data}
    only = spec.data_dir or (spec.data[0].at if len(spec.data) == 1 else "")
    return {"ALLOT_DATA_DIR": only, **found} if only else found


def _own(job: JobRecord, index: TaskIndex, nodes: Nodes, folders: Folders) -> Env:
    """The ALLOT_* variables, documented in docs/guide/environment.md."""
    spec, attempt = job.running_as, job.attempts[-1]
    role, number = spec.role_of(index)
    slot = attempt.slots[index]
    env = {
        "ALLOT_JOB_ID": str(job.id),
        "ALLOT_JOB_NAME": spec.name,
        "ALLOT_ATTEMPT": str(attempt.no),
        "ALLOT_TENANT": spec.tenant,
        "ALLOT_QUEUE": spec.queue,
        "ALLOT_USER": job.owner.user,
        "ALLOT_ROLE": role.name,
        "ALLOT_ROLE_INDEX": str(number),
        "ALLOT_TASK": f"{role.name}.{number}",
        "ALLOT_NODE": nodes[slot.node].name,
        "ALLOT_DEVICES": ",".join(str(device) for device in slot.devices),
        "ALLOT_GPUS": f"{slot.gpu_milli / DEVICE:g}",
        "ALLOT_CPUS": f"{role.resources.cpu_milli / 1000:g}",
        "ALLOT_MEMORY_BYTES": str(role.resources.memory),
        "ALLOT_ENTITLEMENT": attempt.entitlement.value,
        "ALLOT_OUTPUT_DIR": folders.output(job.id, spec, attempt.no),
        "ALLOT_HOSTFILE": folders.hostfile(job.id, attempt.no),
        "ALLOT_CHECKPOINT_DIR": folders.checkpoints(job.id, spec),
        "ALLOT_CHECKPOINT_FILE": folders.checkpoint_file(job.id, spec),
    }
    if index == 0:
        env["ALLOT_PROGRESS_FILE"] = folders.progress_file(job.id, spec)
    if job.spec.roles[-1].elastic:
        env["ALLOT_TASKS_FILE"] = folders.size_file(job.id, attempt.no)
    env |= _data(spec)
    if code := _code_dir(job, folders):
        env["ALLOT_CODE_DIR"] = code
    if job.checkpoint is not None:
        env["ALLOT_RESUME_FROM"] = job.checkpoint.path
    if spec.checkpoint is not None and spec.checkpoint.every_ms:
        env["ALLOT_CHECKPOINT_EVERY_MS"] = str(spec.checkpoint.every_ms)
    if spec.checkpoint is not None:
        env["ALLOT_CHECKPOINT_KEEP"] = str(spec.checkpoint.keep)
    if spec.array is not None:
        env["ALLOT_ARRAY_INDEX"] = str(spec.array.index)
        env["ALLOT_ARRAY_SIZE"] = str(spec.array.size)
        env["ALLOT_ARRAY_ID"] = str(spec.array.parent)
        env |= _sweep(spec.array)
    for label, ports in ports_of(spec, attempt.port, index).items():
        env[f"ALLOT_PORT_{_word(label)}"] = ",".join(str(port) for port in ports)
    return env


def _sweep(trial: ArraySlice) -> Env:
    """What a trial is compared by, and at which steps; `allotment.progress` reads both."""
    found = {"ALLOT_SWEEP_METRIC": trial.metric} if trial.metric else {}
    if trial.rungs:
        found["ALLOT_SWEEP_RUNGS"] = " ".join(map(str, trial.rungs))
    return found


def _packages(spec: JobSpec, folders: Folders) -> str:
    return folders.environment(spec.environment.key) if spec.environment else ""


def _kept(spec: JobSpec, folders: Folders) -> tuple[str, ...]:
    """Return the environment of a job, and the Pythons that were fetched: it may be of one."""
    if spec.environment is None:
        return ()
    is_of_image = spec.image and not spec.environment.carried
    return (_packages(spec, folders), *(() if is_of_image else (folders.pythons(),)))


CARRIED = """\
[ -x "$0/bin/python" ] ||
{ echo "allot: this node does not see the environment of the job" >&2; exit 126; }
"$0/bin/python" -I -S -c 'import os, sys
libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
sys.exit([*map(int, libc.split("."))] < [2, 28])' ||
{ echo "allot: this image cannot run the Python of the environment:" \
"it needs glibc 2.28 or newer" >&2; exit 126; }
case ":$PATH" in ":$0/bin:"*) ;; *) PATH="$0/bin${PATH:+:$PATH}"; export PATH;; esac
exec "$@"
"""
"""Looks whether an image can run a Python that came along, and has it found before all others.

What is in the image only the image knows, and what its own PATH is."""


def _led(spec: JobSpec, folders: Folders, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a task's words, led by what looks whether its environment can be used."""
    if not (argv and spec.environment and spec.environment.carried):
        return argv
    return ("/bin/sh", "-c", CARRIED, _packages(spec, folders), *argv)


def _of_packages(spec: JobSpec, folders: Folders) -> Env:
    """What makes a task use the packages that its job asked for, before all others."""
    where = _packages(spec, folders)
    if not where:
        return {}
    path = (dict(spec.env) | dict(spec.secrets)).get("PATH", USUAL_PATH)
    return {"VIRTUAL_ENV": where, "PATH": f"{where}/bin:{path}"}


def _code_dir(job: JobRecord, folders: Folders) -> str:
    spec = job.running_as
    return folders.code(job.id, job.attempts[-1].no) if spec.code else spec.code_dir


def _classic(job: JobRecord, index: int, nodes: Nodes, account: Account) -> Env:
    """The PAI_* variables that jobs in the classic form read."""
    spec, attempt = job.running_as, job.attempts[-1]
    role, number = spec.role_of(index)
    here = nodes[attempt.slots[index].node].address
    mine = ports_of(spec, attempt.port, index)
    env = {
        "PAI_JOB_NAME": spec.name,
        "PAI_USER_NAME": account.name,
        "PAI_VIRTUAL_CLUSTER": spec.tenant,
        "PAI_TASK_ROLE_COUNT": str(len(spec.roles)),
        "PAI_TASK_ROLE_LIST": ",".join(r.name for r in spec.roles),
        "PAI_TASK_ROLE_INSTANCES": ",".join(f"{r.name}:{r.count}" for r in spec.roles),
        "PAI_CURRENT_TASK_ROLE_NAME": role.name,
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(number),
        "PAI_TASK_INDEX": str(number),
        "PAI_CURRENT_CONTAINER_IP": here,
        "PAI_CONTAINER_HOST_IP": here,
        "PAI_CURRENT_CONTAINER_PORT": str(next(iter(mine.values()), (attempt.port,))[0]),
        "PAI_CONTAINER_HOST_PORT_LIST": ";".join(
            f"{label}:{','.join(str(p) for p in ports)}" for label, ports in mine.items()
        ),
        "PAI_WORK_DIR": spec.code_dir or PurePosixPath(account.home).as_posix(),
        "PAI_DATA_DIR": spec.data_dir,
        "PAI_OUTPUT_DIR": spec.output_dir,
        "FC_TASKROLE_NAME": role.name,
        "FC_TASK_INDEX": str(number),
    }
    for label, ports in mine.items():
        env[f"PAI_CONTAINER_HOST_{label}_PORT_LIST"] = ",".join(str(port) for port in ports)
    env |= _classic_roles(spec)
    env |= _classic_tasks(spec, attempt, nodes)
    return env


def _classic_roles(spec: JobSpec) -> Env:
    env: Env = {}
    for role in spec.roles:
        need = role.resources
        env[f"PAI_TASK_ROLE_TASK_COUNT_{role.name}"] = str(role.count)
        env[f"PAI_RESOURCE_{role.name}"] = (
            f"{need.gpu_milli // DEVICE},{-(-need.cpu_milli // 1000)},{need.memory // MIB},64"
        )
        env[f"PAI_MIN_FAILED_TASK_COUNT_{role.name}"] = str(role.completion.min_failed)
        env[f"PAI_MIN_SUCCEEDED_TASK_COUNT_{role.name}"] = str(
            role.completion.min_succeeded or role.count
        )
    return env


def _classic_tasks(spec: JobSpec, attempt: AttemptRecord, nodes: Nodes) -> Env:
    env: Env = {}
    hosts: dict[str, list[str]] = {}
    for i, slot in enumerate(attempt.slots):
        role, number = spec.role_of(i)
        address = nodes[slot.node].address
        ports = ports_of(spec, attempt.port, i)
        first = next(iter(ports.values()), (attempt.port,))[0]
        hosts.setdefault(role.name, []).append(f"{address}:{first}")
        env[f"PAI_HOST_IP_{role.name}_{number}"] = address
        for label, numbers in ports.items():
            listed = ",".join(str(port) for port in numbers)
            env[f"PAI_PORT_LIST_{role.name}_{number}_{label}"] = listed
            env[f"PAI_{role.name}_{number}_{label}_PORT"] = listed
    for name, listed_hosts in hosts.items():
        env[f"PAI_TASK_ROLE_{name}_HOST_LIST"] = ",".join(listed_hosts)
    return env


def _word(label: str) -> str:
    """Make a label fit for a variable's name."""
    return "".join(c if c.isalnum() else "_" for c in label).upper()


def redacted(text: str, secrets: Sequence[tuple[str, str]]) -> str:
    """Return a text of ours with every secret value replaced."""
    for _, value in secrets:
        if len(value) >= 4:
            text = text.replace(value, "***")
    return text
