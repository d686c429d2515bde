"""The processes that run tasks: standard library only, nothing else of ours.

    launcher ── one per state folder; outlives the service, forks a supervisor per task
      └─ supervisor ── watches one task: its logs, limits, control pipe and status file
           └─ the task's command

As root, a supervisor is process 1 of its task's PID namespace: it adopts and reaps what the
task leaves behind, and when it dies, however it dies, the kernel ends the whole task.

Everything they import is loaded when the launcher starts and stays in memory, so an
upgrade of the files under them changes nothing for tasks that run.
"""
