"""The ends of logs of programs that failed, as such programs write them, and what they mean.

Each has the code expected, the exit code that came with it, and a piece of the evidence.
"""

from typing import NamedTuple


class Failing(NamedTuple):
    """One log, and what a person who knows the trade would say."""

    expect: str
    exit_code: int
    evidence: str
    log: str


LOGS = [
    Failing(
        "image_not_fetched",
        255,
        "pinging container registry",
        """\
FATAL:   Unable to handle docker://127.0.0.1:9/bb@sha256:0000 uri: failed to get checksum for \
docker://127.0.0.1:9/bb@sha256:0000: pinging container registry 127.0.0.1:9: Get \
"http://127.0.0.1:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused
""",
    ),
    Failing(
        "command_not_found",
        255,
        "nonesuch",
        """\
FATAL:   "nonesuch": executable file not found in $PATH
""",
    ),
    Failing(
        "cuda_out_of_memory",
        1,
        "Tried to allocate 20.00 MiB",
        """\
epoch 3:  41%|████      | 512/1250 [04:11<06:02,  2.04it/s, loss=2.31]
Traceback (most recent call last):
  File "/code/train.py", line 214, in <module>
    main()
  File "/code/train.py", line 180, in main
    loss.backward()
  File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 626, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total \
capacity of 23.69 GiB of which 8.25 MiB is free. Including non-PyTorch memory, this process \
has 23.67 GiB memory in use.
""",
    ),
    Failing(
        "cuda_out_of_memory",
        1,
        "RESOURCE_EXHAUSTED",
        """\
2026-03-01 10:11:12.131313: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator \
(GPU_0_bfc) ran out of memory trying to allocate 16.00GiB
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to \
allocate 17179869184 bytes.
""",
    ),
    Failing(
        "cuda_out_of_memory",
        1,
        "CUDA out of memory",
        # What other ranks say about it comes later, and is only the echo.
        """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/code/train.py", line 88, in step
[rank1]:     out = model(batch)
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.
[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed \
by peer [10.1.4.7]:41873
""",
    ),
    Failing(
        "import_error",
        1,
        "ModuleNotFoundError: No module named 'deepspeed'",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 3, in <module>
    import deepspeed
ModuleNotFoundError: No module named 'deepspeed'
""",
    ),
    Failing(
        "import_error",
        1,
        "libcudnn.so.9",
        """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/code/train.py", line 1, in <module>
    import torch
ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory
""",
    ),
    Failing(
        "import_error",
        1,
        "No module named 'flash_attn'",
        # A launcher's own traceback comes last, and tells nothing.
        """\
Traceback (most recent call last):
  File "/code/train.py", line 9, in <module>
    from flash_attn import flash_attn_func
ModuleNotFoundError: No module named 'flash_attn'
E0301 10:00:00.000000 140 torch/distributed/elastic/multiprocessing/api.py:882] failed \
(exitcode: 1) local_rank: 0 (pid: 4321) of binary: /opt/venv/bin/python
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/code/train.py FAILED
""",
    ),
    Failing(
        "python_exception",
        1,
        "ValueError: not enough values",
        # A handled refusal earlier in the log is not the cause.
        """\
WARNING retrying in 1 s: [Errno 111] Connection refused
WARNING retrying in 2 s: [Errno 111] Connection refused
connected
Traceback (most recent call last):
  File "/code/train.py", line 12, in <module>
    a, b = line.split()
    ^^^^
ValueError: not enough values to unpack (expected 2, got 1)
""",
    ),
    Failing(
        "python_exception",
        1,
        "mypkg.errors.BadShard: shard 7",
        """\
Traceback (most recent call last):
  File "/code/a.py", line 1, in f
KeyError: 7

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/a.py", line 3, in <module>
    raise BadShard(7) from error
mypkg.errors.BadShard: shard 7
""",
    ),
    Failing(
        "syntax_error",
        1,
        "SyntaxError: '(' was never closed",
        """\
  File "/code/train.py", line 12
    print("epoch", epoch
         ^
SyntaxError: '(' was never closed
""",
    ),
    Failing(
        "file_not_found",
        1,
        "/data/imagenet/train",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 40, in <module>
    for entry in os.scandir(root):
FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet/train'
""",
    ),
    Failing(
        "permission_denied",
        1,
        "/data/cache",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 40, in <module>
    os.makedirs("/data/cache")
PermissionError: [Errno 13] Permission denied: '/data/cache'
""",
    ),
    Failing(
        "cuda_assertion",
        1,
        "device-side assert",
        """\
../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: \
[0,0,0], thread: [11,0,0] Assertion `t >= 0 && t < n_classes` failed.
Traceback (most recent call last):
  File "/code/train.py", line 60, in <module>
    loss = criterion(out, y)
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace \
below might be incorrect.
""",
    ),
    Failing(
        "cuda_illegal_access",
        134,
        "illegal memory access",
        """\
terminate called after throwing an instance of 'c10::Error'
  what():  CUDA error: an illegal memory access was encountered
Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43
""",
    ),
    Failing(
        "gpu_ecc",
        1,
        "uncorrectable ECC error",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    ),
    Failing(
        "gpu_lost",
        1,
        "fallen off the bus",
        "[ 912.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=2411, GPU has fallen off the bus.\n",
    ),
    Failing(
        "gpu_fault",
        1,
        "Xid (PCI:0000:86:00): 94",
        "NVRM: Xid (PCI:0000:86:00): 94, pid=918, name=python, Contained: SM\n",
    ),
    Failing(
        "no_gpu",
        1,
        "No CUDA GPUs",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 5, in <module>
    model.cuda()
RuntimeError: No CUDA GPUs are available
""",
    ),
    Failing(
        "cuda_too_new",
        1,
        "too old",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n",
    ),
    Failing(
        "gpu_driver",
        255,
        "version mismatch",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library: 550.54\n",
    ),
    Failing(
        "collective_timeout",
        134,
        "Watchdog caught collective",
        """\
[rank3]:[E301 12:00:01.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=1423, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, \
Timeout(ms)=600000) ran for 600042 milliseconds before timing out.
[rank3]:[E301 12:00:01.2 ProcessGroupNCCL.cpp:1785] Exception (either an error or timeout) \
detected by watchdog at work: 1423
terminate called after throwing an instance of 'c10::DistBackendError'
""",
    ),
    Failing(
        "nccl_error",
        1,
        "DistBackendError",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 31, in <module>
    dist.barrier()
torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.\
hpp:275, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5
ncclSystemError: System call (e.g. socket, malloc) or external library call failed.
""",
    ),
    Failing(
        "peer_gone",
        1,
        "Connection closed by peer",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 31, in <module>
    dist.all_reduce(grad)
RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer \
[10.1.4.7]:41873
""",
    ),
    Failing(
        "peer_gone",
        1,
        "ConnectionResetError",
        """\
Traceback (most recent call last):
  File "/code/ring.py", line 31, in recv_exactly
    piece = sock.recv(size)
ConnectionResetError: [Errno 104] Connection reset by peer
""",
    ),
    Failing(
        "rendezvous_timeout",
        1,
        "3/4 clients joined",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 8, in <module>
    dist.init_process_group("gloo")
torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 3/4 clients \
joined.
""",
    ),
    Failing(
        "port_in_use",
        1,
        "Address already in use",
        """\
Traceback (most recent call last):
  File "/code/serve.py", line 8, in <module>
    server.bind(("", 29500))
OSError: [Errno 98] Address already in use
""",
    ),
    Failing(
        "disk_full",
        1,
        "No space left on device",
        """\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", line 850, in save
    with _open_zipfile_writer(f) as opened_zipfile:
OSError: [Errno 28] No space left on device
""",
    ),
    Failing(
        "disk_quota",
        1,
        "Disk quota exceeded",
        "cp: error writing '/home/ada/model.bin': Disk quota exceeded\n",
    ),
    Failing(
        "shm_full",
        1,
        "Bus error",
        """\
ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared \
memory (shm).
RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that \
dataloader's workers are out of shared memory. Please try to raise your shared memory limit.
""",
    ),
    Failing(
        "loader_worker_died",
        1,
        "killed by signal: Killed",
        "RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed.\n",
    ),
    Failing(
        "memory_refused",
        1,
        "MemoryError",
        """\
Traceback (most recent call last):
  File "/code/load.py", line 2, in <module>
    table = bytearray(1 << 40)
MemoryError
""",
    ),
    Failing(
        "memory_refused",
        1,
        "Unable to allocate 74.5 GiB",
        """\
Traceback (most recent call last):
  File "/code/load.py", line 2, in <module>
    x = np.zeros((100000, 100000))
numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape \
(100000, 100000) and data type float64
""",
    ),
    Failing(
        "memory_refused",
        134,
        "std::bad_alloc",
        "terminate called after throwing an instance of 'std::bad_alloc'\n"
        "  what():  std::bad_alloc\nAborted (core dumped)\n",
    ),
    Failing("killed", 137, "Killed", "run.sh: line 3:  4711 Killed    python train.py\n"),
    Failing(
        "too_many_files",
        1,
        "Too many open files",
        "OSError: [Errno 24] Too many open files: '/data/train/000131.jpg'\n",
    ),
    Failing(
        "fork_refused",
        254,
        "fork: retry",
        "bash: fork: retry: Resource temporarily unavailable\n" * 3,
    ),
    Failing(
        "fork_refused",
        1,
        "can't start new thread",
        """\
Traceback (most recent call last):
  File "/usr/lib/python3.11/threading.py", line 964, in start
    _start_new_thread(self._bootstrap, ())
RuntimeError: can't start new thread
""",
    ),
    Failing(
        "loss_not_finite",
        1,
        "tensor(nan",
        "Epoch: [0]  [ 40/625]  eta: 0:04:31  lr: 0.100000  loss: 6.1\n"
        "Loss is nan, stopping training\n{'loss': tensor(nan, device='cuda:0')}\n",
    ),
    Failing(
        "not_executable",
        1,
        "./run.sh: Permission denied",
        "bash: line 1: ./run.sh: Permission denied\n",
    ),
    Failing("not_executable", 126, "Permission denied", "sh: 1: ./run.sh: Permission denied\n"),
    Failing("command_not_found", 127, "torchrun", "/bin/sh: 1: torchrun: not found\n"),
    Failing("command_not_found", 127, "exit code 127", ""),
    Failing("command_not_found", 1, "nvcc", "make.sh: line 2: nvcc: command not found\n"),
    Failing(
        "missing_library",
        127,
        "libcudart.so.12",
        "./train: error while loading shared libraries: libcudart.so.12: cannot open shared "
        "object file: No such file or directory\n",
    ),
    Failing("wrong_architecture", 126, "Exec format", "sh: 1: ./train: Exec format error\n"),
    Failing(
        "program_missing",
        2,
        "trian.py",
        "python3: can't open file '/code/trian.py': [Errno 2] No such file or directory\n",
    ),
    Failing(
        "program_missing",
        1,
        "No module named trainer",
        "/usr/bin/python3: No module named trainer\n",
    ),
    Failing(
        "segmentation_fault",
        139,
        "Fatal Python error: Segmentation fault",
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call "
        'first):\n  File "/code/train.py", line 3 in <module>\n',
    ),
    Failing(
        "mpi_abort",
        5,
        "MPI_ABORT was invoked on rank 1",
        """\
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
with errorcode 5.
""",
    ),
    Failing(
        "interrupted",
        130,
        "KeyboardInterrupt",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 3, in <module>
    step()
KeyboardInterrupt
""",
    ),
    Failing(
        "hub_refused",
        1,
        "401 Client Error",
        """\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/huggingface_hub/utils/_http.py", line 409, in r
    response.raise_for_status()
requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://hub.example/x
""",
    ),
    Failing(
        "hub_refused",
        1,
        "gated repo",
        """\
Traceback (most recent call last):
  File "/code/train.py", line 6, in <module>
    model = AutoModel.from_pretrained("acme/big")
OSError: You are trying to access a gated repo.
Make sure to have access to it at https://hub.example/acme/big.
403 Client Error. (Request ID: Root=1-65)
""",
    ),
    Failing(
        "hub_rate_limit",
        1,
        "429 Client Error",
        """\
Traceback (most recent call last):
  File "/code/fetch.py", line 6, in <module>
    r.raise_for_status()
requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: x
""",
    ),
    Failing(
        "name_not_resolved",
        1,
        "ConnectionError",
        """\
Traceback (most recent call last):
  File "/code/fetch.py", line 6, in <module>
    requests.get(url)
requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max \
retries exceeded with url: /x (Caused by NameResolutionError("<urllib3.connection.HTTPS object \
at 0x7f>: Failed to resolve 'hub.example' ([Errno -3] Temporary failure in name resolution)"))
""",
    ),
    Failing(
        "tls_failed",
        1,
        "CERTIFICATE_VERIFY_FAILED",
        "urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate "
        "verify failed: unable to get local issuer certificate (_ssl.c:1006)>\n",
    ),
]
