"""What devices, and the libraries that drive them, say when they fail. Data."""

import re
from typing import Final

from allotment.engine.log_scan import LogPattern
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass

USER, PLATFORM, HARDWARE = Owner.USER, Owner.PLATFORM, Owner.HARDWARE
AGAIN, UNKNOWN = RetryClass.PLATFORM, RetryClass.UNKNOWN

BAD_DEVICE: Final = (
    "It is tried again by itself. An administrator drains the node and looks at it."
)
FIRST_RANK: Final = "Look for the task that failed first: allot show JOB, then its log."

FAULTS: Final = (
    LogPattern(
        Diagnosis("gpu_lost", "A GPU fell off the bus.", HARDWARE, AGAIN, BAD_DEVICE),
        ("off the bus", "GPU is lost", "ERROR_GPU_IS_LOST"),
        re.compile(r"f[ea]ll(?:en)? off the bus|GPU is lost|NVML_ERROR_GPU_IS_LOST"),
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=2411, GPU has fallen off the bus.",
    ),
    LogPattern(
        Diagnosis("gpu_ecc", "A GPU's memory is faulty.", HARDWARE, AGAIN, BAD_DEVICE),
        ("ECC", "CUDA_ERROR_ECC"),
        re.compile(r"[Uu]ncorrectable ECC|[Dd]ouble[- ][Bb]it ECC|ERROR_ECC_UNCORRECTABLE"),
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    LogPattern(
        Diagnosis(
            "gpu_fault",
            "The driver reported a fault of a GPU (Xid).",
            HARDWARE,
            AGAIN,
            BAD_DEVICE,
        ),
        ("Xid",),
        # Other numbers are mostly faults of programs: 13, 31, 43, 45.
        re.compile(r"Xid \(PCI:[^)]{1,40}\): (?:48|6[1-4]|74|79|92|9[45]|119|120|14\d)\b"),
        "NVRM: Xid (PCI:0000:86:00): 48, pid=918, An uncorrectable double bit error",
    ),
    LogPattern(
        Diagnosis(
            "gpu_driver",
            "The GPU driver of this node is broken, or was changed while in use.",
            PLATFORM,
            AGAIN,
            "It is tried again by itself. An administrator reloads the driver or reboots.",
        ),
        ("version mismatch", "CUDA_ERROR_SYSTEM", "initialize NVML", "Error 802", "Error 803"),
        re.compile(
            r"[Dd]river/library version mismatch|Failed to initialize NVML"
            r"|system has unsupported display driver|CUDA_ERROR_SYSTEM_\w{1,40}"
            r"|Error 80[23]: system not yet"
        ),
        "Failed to initialize NVML: Driver/library version mismatch",
    ),
    LogPattern(
        Diagnosis(
            "cuda_too_new",
            "The program's CUDA is newer than the node's driver.",
            USER,
            UNKNOWN,
            "Use a build for an older CUDA, or ask for a gpu_type with a newer driver.",
        ),
        ("CUDA driver version", "driver on your system is too old", "non supported HW"),
        re.compile(
            r"CUDA driver version is insufficient|driver on your system is too old"
            r"|forward compatibility was attempted on non supported HW"
        ),
        "CUDA error 35: CUDA driver version is insufficient for CUDA runtime version",
    ),
    LogPattern(
        Diagnosis(
            "no_gpu",
            "The program looks for a GPU and sees none.",
            USER,
            UNKNOWN,
            "Ask for one with resources.gpu; do not set CUDA_VISIBLE_DEVICES; use a GPU build.",
        ),
        (
            "no CUDA-capable",
            "No CUDA GPUs",
            "Found no NVIDIA",
            "not compiled with CUDA",
            "NO_DEVICE",
        ),
        re.compile(
            r"no CUDA-capable device is detected|No CUDA GPUs are available"
            r"|Found no NVIDIA driver|not compiled with CUDA enabled|CUDA_ERROR_NO_DEVICE"
        ),
        "RuntimeError: No CUDA GPUs are available",
    ),
    LogPattern(
        Diagnosis(
            "gpu_not_its_own",
            "The program uses a device number that it was not given.",
            USER,
            UNKNOWN,
            "Inside a task devices count from 0; use LOCAL_RANK, or device 0 if it has one.",
        ),
        ("invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE"),
        re.compile(r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE"),
        "RuntimeError: CUDA error: invalid device ordinal",
    ),
    LogPattern(
        Diagnosis(
            "cuda_out_of_memory",
            "A GPU ran out of memory.",
            USER,
            UNKNOWN,
            "Use a smaller batch, shard the model, or ask for more gpu_memory or GPUs.",
        ),
        (
            "out of memory",
            "OUT_OF_MEMORY",
            "ALLOC_FAILED",
            "OutOfMemory",
            "Out of memory",
            "OOM when allocating",
        ),
        re.compile(
            r"(?:CUDA|HIP)(?: error)?: ?out of memory|(?:CUDA|HIP) out of memory"
            r"|CUDA_ERROR_OUT_OF_MEMORY|CU\w{2,8}_STATUS_ALLOC_FAILED|hipErrorOutOfMemory"
            r"|RESOURCE_EXHAUSTED: (?:Out of memory|OOM)|OOM when allocating tensor"
        ),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
        "total capacity of 79.15 GiB of which 1.21 GiB is free.",
    ),
    LogPattern(
        Diagnosis(
            "cuda_assertion",
            "An assertion failed in code on the GPU; most often a label or index out of range.",
            USER,
            UNKNOWN,
            "Run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to see the line.",
        ),
        ("device-side assert",),
        re.compile(r"device-side assert triggered"),
        "RuntimeError: CUDA error: device-side assert triggered",
    ),
    LogPattern(
        Diagnosis(
            "cuda_illegal_access",
            "Code on the GPU touched memory that is not its own.",
            USER,
            UNKNOWN,
            "Run once with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; if several programs do "
            "this on one node, suspect its GPU.",
        ),
        ("illegal memory access", "ILLEGAL_ADDRESS", "misaligned address", "Xid"),
        re.compile(
            r"illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS"
            r"|misaligned address|Xid \(PCI:[^)]{1,40}\): (?:13|31|43)\b"
        ),
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    LogPattern(
        Diagnosis(
            "collective_timeout",
            "A collective operation of the gang did not end in time: a rank hangs, died, or "
            "took another path.",
            USER,
            UNKNOWN,
            FIRST_RANK + " NCCL_DEBUG=INFO and py-spy show where a rank is.",
        ),
        (
            "Watchdog caught collective",
            "NCCL timeout",
            "ncclTimeout",
            "NCCL operations have failed",
        ),
        re.compile(
            r"Watchdog caught collective operation timeout|NCCL timeout|ncclTimeout"
            r"|NCCL operations have failed or timed out"
        ),
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1423, "
        "OpType=ALLREDUCE, NumelIn=1048576, Timeout(ms)=600000) ran for 600042 milliseconds",
    ),
    LogPattern(
        Diagnosis(
            "cuda_error",
            "CUDA or one of its libraries reported an error.",
            USER,
            UNKNOWN,
            "Run once with CUDA_LAUNCH_BLOCKING=1; check that library versions fit each other.",
        ),
        ("CUDA error", "CUDA_ERROR", "_STATUS_", "cudaError", "HIP error"),
        re.compile(
            r"(?:CUDA|HIP) error: |CUDA_ERROR_[A-Z_]{3,40}|cudaError[A-Z]\w{2,40}"
            r"|CU(?:DNN|BLAS|SPARSE|SOLVER|FFT)_STATUS_(?!SUCCESS)[A-Z_]{3,40}"
        ),
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ),
)
"""Hardly ever in the output of a program that did not fail of it. First match wins."""
