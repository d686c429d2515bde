"""Programs that run inside a job. They use the standard library alone, of Python 3.10 on.

They are copied into the state folder, once: a job's user may not be able to read ours.
"""
