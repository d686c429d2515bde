"""What hubs, networks and the other members of a gang say when they fail. Data."""

import re
from typing import Final

from allotment.engine.log_scan import LogPattern
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass

USER, PLATFORM = Owner.USER, Owner.PLATFORM
UNKNOWN = RetryClass.UNKNOWN

FIRST_RANK: Final = "Look for the task that failed first: allot show JOB, then its log."

NETWORK: Final = (
    LogPattern(
        Diagnosis(
            "hub_refused",
            "A model or data hub refused access (401 or 403).",
            USER,
            UNKNOWN,
            "Give its token as a secret of the job, and accept the model's terms on the hub.",
        ),
        ("401", "403", "GatedRepo", "gated repo", "RepositoryNotFoundError"),
        re.compile(
            r"40[13] Client Error|HTTP Error 40[13]|HTTP/[\d.]{1,3} 40[13]|GatedRepoError"
            r"|access a gated repo|RepositoryNotFoundError|status(?: code)?:? 40[13]\b"
        ),
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url",
    ),
    LogPattern(
        Diagnosis(
            "hub_rate_limit",
            "A model or data hub takes no more requests for now (429).",
            USER,
            UNKNOWN,
            "Download once to a shared folder and use that as data_dir.",
        ),
        ("429", "oo Many Requests"),
        re.compile(
            r"429 Client Error|HTTP Error 429|Too Many Requests|status(?: code)?:? 429\b"
        ),
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url",
    ),
    LogPattern(
        Diagnosis(
            "name_not_resolved",
            "A host name could not be resolved.",
            PLATFORM,
            UNKNOWN,
            "Check the name; nodes may have no access to other networks: download to a "
            "shared folder first.",
        ),
        (
            "name resolution",
            "service not known",
            "NameResolution",
            "resolve host",
            "getaddrinfo",
        ),
        re.compile(
            r"failure in name resolution|Name or service not known|NameResolutionError"
            r"|[Cc]ould not resolve host|getaddrinfo failed"
        ),
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    ),
    LogPattern(
        Diagnosis(
            "tls_failed",
            "A secure connection could not be made.",
            PLATFORM,
            UNKNOWN,
            "Check the node's clock and certificates; SSL_CERT_FILE names others.",
        ),
        ("CERTIFICATE_VERIFY_FAILED", "SSLError", "certificate verify failed", "SSL routines"),
        re.compile(
            r"CERTIFICATE_VERIFY_FAILED|SSLError|certificate verify failed|SSL routines"
        ),
        "ssl.SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
    ),
    LogPattern(
        Diagnosis(
            "rendezvous_timeout",
            "Not all members of the gang met in time.",
            USER,
            UNKNOWN,
            FIRST_RANK
            + " All must use the MASTER_ADDR, MASTER_PORT and WORLD_SIZE they are given.",
        ),
        ("Rendezvous", "clients", "socket has timed out", "TCPStore"),
        re.compile(
            r"Rendezvous(?:Timeout|Connection|Closed)Error|clients? (?:has|have)? ?timed out"
            r"|Timed out after \d+ seconds waiting for clients|client socket has timed out"
        ),
        "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. "
        "3/4 clients joined.",
    ),
    LogPattern(
        Diagnosis(
            "port_in_use",
            "A port that it wants is in use.",
            USER,
            UNKNOWN,
            "Use MASTER_PORT, or ask for ports in the job file; fixed numbers collide.",
        ),
        ("ddress already in use", "EADDRINUSE"),
        re.compile(r"[Aa]ddress already in use|EADDRINUSE"),
        "OSError: [Errno 98] Address already in use",
    ),
    LogPattern(
        Diagnosis(
            "mpi_abort",
            "A rank called MPI_Abort, or mpirun lost one.",
            USER,
            UNKNOWN,
            FIRST_RANK,
        ),
        ("MPI_ABORT", "MPI_Abort", "mpirun", "PRTE has lost", "ORTE has lost"),
        re.compile(
            r"MPI_ABORT was invoked|called MPI_Abort|mpirun noticed that process rank"
            r"|(?:mpirun|mpiexec) detected that|(?:PRTE|ORTE) has lost communication"
        ),
        "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD with errorcode 5.",
    ),
    LogPattern(
        Diagnosis(
            "peer_gone",
            "Another member of the gang vanished or was never there.",
            USER,
            UNKNOWN,
            FIRST_RANK,
        ),
        (
            "onnection reset",
            "onnection refused",
            "onnection closed by peer",
            "Broken pipe",
            "connectFullMesh",
            "ncclRemoteError",
            "Socket closed",
        ),
        re.compile(
            r"[Cc]onnection (?:reset|refused|closed by peer)|Broken pipe|connectFullMesh failed"
            r"|ncclRemoteError|Socket closed"
        ),
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
        "by peer [10.1.4.7]:41873",
    ),
    LogPattern(
        Diagnosis(
            "nccl_error",
            "NCCL could not talk to its peers, or to the system.",
            USER,
            UNKNOWN,
            "Set NCCL_DEBUG=INFO; check NCCL_SOCKET_IFNAME and /dev/shm. " + FIRST_RANK,
        ),
        ("NCCL WARN", "NCCL error", "nccl"),
        re.compile(
            r"NCCL WARN |NCCL error|nccl(?:System|Internal|UnhandledCuda|InvalidUsage)Error"
        ),
        "node1:2211:2290 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect failed",
    ),
    LogPattern(
        Diagnosis(
            "network_unreachable",
            "A host cannot be reached.",
            PLATFORM,
            UNKNOWN,
            "Nodes may have no access to other networks: download to a shared folder first.",
        ),
        ("etwork is unreachable", "o route to host", "onnection timed out", "ConnectTimeout"),
        re.compile(
            r"[Nn]etwork is unreachable|[Nn]o route to host|[Cc]onnection timed out"
            r"|ConnectTimeout"
        ),
        "OSError: [Errno 101] Network is unreachable",
    ),
)
"""Often only the echo of another task's failure, or of a try that later worked."""
