"""The local backend: runs tasks on this machine.

Nothing is imported here: the launcher lives in a folder below and must stay small.
"""
