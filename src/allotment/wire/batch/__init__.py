"""Scripts of batch systems into jobs: `#SBATCH` of Slurm, `#BSUB` of LSF and OpenLava.

A dialect is a table of options (`slurm.py`, `lsf.py`), each with a function that writes its
value into a draft (`draft.py`), or that says what becomes of it. An option of the table is
read, warned of or refused; one that is not there is refused. So none is dropped silently.
"""
