"""Tasks on whole nodes that Allotment holds in a Slurm partition, run by our own runner.

service ── PilotBackend: one `Hold` a node, one `Link` to each runner that is up
  ╎ TLS, dialled by the runner (docs/adr/0020)
Slurm job of the node ── fence: PID and mount namespaces, control groups of its own
  └─ agent ── the local engine, asked over the link
       └─ launcher, supervisors, tasks: as on one machine
"""
