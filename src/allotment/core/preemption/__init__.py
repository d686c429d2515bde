"""Preemption: which gangs, reserved places and surplus tasks make room for a job that is due.

There is one search (`search.py`): candidates are preempted in order until there is a place, and
then reprieved. Who may be a candidate is said in `candidates.py`; for whom, and out of which
share, in `owner.py` and `tenant.py`; how a gang that must go does so, in `eviction.py`.
"""
