"""Preemption: which gangs, reserved places and surplus tasks make room for a job.

There is one search, with its candidates (`search.py`): they are preempted in order until there
is a place, and then reprieved. For which job, and out of which share, is said in `room.py`; how
a gang that must go does so, in `eviction.py`.
"""
