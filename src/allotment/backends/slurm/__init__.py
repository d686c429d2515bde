"""Tasks as jobs of a Slurm cluster: Allotment decides where and when, Slurm starts and limits.

Each task is one Slurm job on the node that was chosen for it. The first process of the job is
`task.py`, packed into one file; it and the service meet in a folder that both see, and Slurm
tells the rest.
"""
