"""The processes that run tasks: standard library only, nothing else of ours.

    launcher ── one per state folder; outlives the service, forks a supervisor per task
      └─ supervisor ── watches one task, owns its logs, limits and status file
           └─ init ── first process inside the task's isolation; parent of its command
                └─ the task's command

Everything they import is loaded when the launcher starts and stays in memory, so an
upgrade of the files under them changes nothing for tasks that run.
"""
