"""What to do where Slurm does not answer, by what came instead. Pure."""


def advice_of(trouble: str, *, over_rest: bool = False) -> str:
    """Return what to try, in whole sentences."""
    text = trouble.lower()
    return _of_rest(text) if over_rest else _of_commands(text)


def _of_commands(text: str) -> str:
    if "munge" in text or "credential" in text or "authentication" in text:
        return (
            "Start munge here with the key of the cluster (/etc/munge/munge.key, the same on "
            "all machines), and compare the clocks: `munge -n | unmunge`."
        )
    if "did not answer in" in text:
        return (
            "Check munge here (`munge -n | unmunge`: one that was killed makes commands wait), "
            "and on the controller that slurmctld runs."
        )
    if "cannot be run" in text:
        return "Install Slurm's commands (Debian: slurm-client) in the PATH of the service."
    if "slurm.conf" in text or "dns srv" in text or "configless" in text:
        return "Put the cluster's slurm.conf in /etc/slurm, or name it in SLURM_CONF."
    return "Check on the controller that slurmctld runs: `scontrol ping`."


def _of_rest(text: str) -> str:
    if "does not accept" in text or "wants a token" in text:
        return (
            "Make a new one on the controller: `scontrol token username=root lifespan=…`; the "
            "controller's key (jwt_key) and clock must be those it was made with."
        )
    if "token" in text:
        return "Put a token there: `scontrol token username=root lifespan=…` prints one."
    if "slurmctld" in text:
        return "Check on the controller that slurmctld runs: `scontrol ping`."
    return "Check that slurmrestd runs and listens there."
