"""The classic JSON form of a job."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.quantity import GIB, MIB, Resources
from allotment.model.spec import Completion, Dialect, JobSpec, Port, TaskRole
from allotment.wire.job import JobFile, job_to_json, read_job, read_job_json

WHOLE = b"""\
{
  // as the documentation has it
  jobName: "tensorflow-distributed",
  "image": "pai.run.tensorflow",
  'dataDir': '/data/cifar-10',
  "outputDir": "/out", "codeDir": "/code",
  "virtualCluster": "vc1",
  "retryCount": 3,
  "taskRoles": [
    {
      "name": "ps_server",
      "taskNumber": 2, "cpuNumber": 2, "memoryMB": 8192, "gpuNumber": 0,
      "minFailedTaskCount": 1, "minSucceededTaskCount": null,
      "command": "python ps.py",
      "portList": [{"label": "web", "beginAt": 0, "portNumber": 2}],
    },
    {
      "name": "worker",
      "taskNumber": 2, "cpuNumber": 2, "memoryMB": 16384, "gpuNumber": 4,
      "minFailedTaskCount": 0, "minSucceededTaskCount": 2,
      "command": "python worker.py",
    },
  ]
}
"""


def read(text: str | bytes) -> JobFile:
    data = text.encode() if isinstance(text, str) else text
    return read_job(data, source="job.json")


def problems(text: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def warnings(text: str) -> list[str]:
    return [str(warning) for warning in read(text).warnings]


def test_every_key_gets_to_its_place() -> None:
    job = read(WHOLE)
    assert job.warnings == ()
    assert job.spec == JobSpec(
        name="tensorflow-distributed",
        tenant="vc1",
        image="pai.run.tensorflow",
        data_dir="/data/cifar-10",
        output_dir="/out",
        code_dir="/code",
        retry=3,
        roles=(
            TaskRole(
                name="ps_server",
                count=2,
                command="python ps.py",
                resources=Resources(0, 2000, 8 * GIB),
                ports=(Port("web", 0, 2),),
            ),
            TaskRole(
                name="worker",
                count=2,
                command="python worker.py",
                resources=Resources(4000, 2000, 16 * GIB),
                completion=Completion(1, 2),
            ),
        ),
        dialect=Dialect.CLASSIC,
    )
    assert read_job_json(job_to_json(job.spec)).spec == job.spec


def test_extras_of_the_form_are_used_or_warned_about() -> None:
    text = """\
{jobName: "x", gpuType: "K80",
 jobEnvs: {LR: 1e-3, N: 2},
 authFile: "/auth",
 extras: {a: 1},
 retryCount: -2,
 taskRoles: [
  {command: "x", gpuNumber: 1, shmMB: 64, minFailedTaskCount: -1, minSucceededTaskCount: -1},
  {command: "y", name: "role0", minFailedTaskCount: 2}]}"""
    spec = read(text).spec
    assert spec.env == (("LR", "1e-3"), ("N", "2"))
    assert [role.gpu_types for role in spec.roles] == [("K80",), ()]
    assert [role.name for role in spec.roles] == ["role0-2", "role0"]
    assert spec.roles[0].completion == Completion(0, None)
    assert spec.roles[0].resources == Resources(1000, 1000, 512 * MIB)
    assert spec.retry == 1_000_000
    assert warnings(text) == [
        "line 3: authFile: is ignored: images are not pulled with credentials yet",
        "line 4: extras: is ignored: plug-ins of other platforms have no counterpart here",
        "line 5: retryCount: -2 asks to run again even after success: only failures are "
        "retried, up to 1,000,000 times (write the number of retries you want)",
        "line 7: taskRoles[0]: has no name, so it is called role0-2 (give it a name)",
        "line 7: taskRoles[0].shmMB: is ignored: the size of /dev/shm is the machine's",
        "line 7: taskRoles[0].minFailedTaskCount: -1 means that no failure ends the job",
        "line 7: taskRoles[0].minSucceededTaskCount: -1 means that the job ends when all its "
        "tasks have ended",
        "line 8: taskRoles[1].minFailedTaskCount: is more than the 1 tasks there are, so no "
        "failure ends the job (write -1 if you mean that)",
    ]


def test_endless_retries_are_warned_about() -> None:
    text = (
        '{jobName: "x", retryCount: -1, gpuType: "A", taskRoles: [{name: "a", command: "x"}]}'
    )
    assert warnings(text) == [
        "line 1: retryCount: -1 asks for retries without end: up to 1,000,000 are made (write "
        "the number of retries you want)",
        "line 1: gpuType: is ignored: no task role asks for a GPU (add gpuNumber)",
    ]


@pytest.mark.parametrize("falsy", ["0", "null", "false", '""'])
def test_a_falsy_minimum_is_the_default(falsy: str) -> None:
    spec = read(
        '{jobName: "x", taskRoles: [{name: "a", command: "x", '
        f"minFailedTaskCount: {falsy}, minSucceededTaskCount: {falsy}}}]}}"
    ).spec
    assert spec.roles[0].completion == Completion(1, None)


def test_everything_wrong_is_said_at_once_with_its_line() -> None:
    text = """\
{
  "jobname": "x",
  "dataDir": "hdfs://host/x",
  "retryCount": -3,
  "taskRoles": [
    {"taskNumber": 0, "memoryMB": -5, "cpuNumber": "two", "commnd": "x",
     "portList": [{"label": "a", "portNumber": 0}]},
    ...
  ]
}"""
    assert problems(text) == [
        'line 1: jobName: is missing (add jobName: "train-resnet")',
        "line 2: jobname: there is no key `jobname` here (did you mean `jobName`?)",
        "line 3: dataDir: 'hdfs://host/x' is an address, and only paths of mounted file "
        "systems work (mount it, and give the path, such as /data/images)",
        "line 4: retryCount: must be at least -2, not -3",
        "line 6: taskRoles[0].command: is missing (add command: python train.py)",
        "line 6: taskRoles[0].taskNumber: must be at least 1, not 0",
        "line 6: taskRoles[0].cpuNumber: must be a number of CPUs, not 'two' (write it like 4, "
        "0.5 or 500m)",
        "line 6: taskRoles[0].memoryMB: must be at least 1, not -5",
        "line 6: taskRoles[0].commnd: there is no key `commnd` here (did you mean `command`?)",
        "line 7: taskRoles[0].portList[0].portNumber: must be at least 1, not 0",
        "line 8: taskRoles: `...` is a placeholder from the documentation (replace it by what "
        "belongs there, or delete it)",
    ]


def test_the_page_of_the_documentation_copied_as_it_stands() -> None:
    text = '{"jobName": "x",\n"image": ...,\n"taskRoles": [\n{"command": ...}\n]}'
    assert problems(text) == [
        "line 2: image: `...` is a placeholder from the documentation (replace it by a value "
        "for `image`, or delete it)",
        "line 4: taskRoles[0].command: `...` is a placeholder from the documentation (replace "
        "it by a value for `command`, or delete it)",
    ]


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        ("[]", "taskRoles: must have at least one task role"),
        ('[{name: "a", command: "x"}, {name: "a", command: "y"}]', "taskRoles[1].name: a is "
         "the name of another task role"),
        ('[{command: "x", minSucceededTaskCount: 2}]', "taskRoles[0].minSucceededTaskCount: 2 "
         "tasks can never succeed"),
        ('[{command: "x", portList: [{label: "a"}, {label: "a"}]}]', "portList[1].label: the "
         "label a is taken"),
        ('[{command: "x", portList: [{label: "a", beginAt: 65535, portNumber: 2}]}]', "goes "
         "beyond port 65535"),
        ('[{command: "x", taskNumber: 900000}, {command: "x", taskNumber: 900000}]', "makes "
         "1,800,000 tasks"),
        ('[{command: "x", taskNumber: 900000, memoryMB: 9000000}]', "of memory in all"),
        ('[{command: "x", memoryMB: 1.5}]', "must be a number of MiB, not 1.5"),
    ],
)  # fmt: skip
def test_sums_and_names_are_checked(roles: str, problem: str) -> None:
    (found,) = problems(f'{{jobName: "x", taskRoles: {roles}}}')
    assert problem in found


def test_the_classic_form_may_be_written_in_yaml() -> None:
    assert read("jobName: x\ntaskRoles:\n- {name: a, command: x}\n").spec.roles[0].name == "a"


def test_the_next_version_of_the_classic_form_is_named() -> None:
    (problem,) = problems("protocolVersion: 2\nname: x\ntype: job\ntaskRoles: {}\n")
    assert problem == (
        "line 1: protocolVersion: this is an OpenPAI v2 job, and only v1 is read (write it in "
        "the native form: docs/guide/job-spec.md)"
    )
