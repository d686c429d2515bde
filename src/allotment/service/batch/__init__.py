"""Scripts of batch systems at run time: what their tasks are told, and the programs they call.

`variables.py` is pure. `files.py` says which files an attempt gets; `tools/` has the programs
that run inside the job: the one that runs the script, `srun` and `scontrol`.
"""
