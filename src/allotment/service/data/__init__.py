"""Datasets: data with names, owners, versions and grants, mounted for the jobs that name them.

store.py      where the files of managed datasets lie, each dataset's apart
datasets.py   making, granting, removing and reading them
away.py       folders that nodes cannot open
using.py      what jobs use of them: settled at submission, mounted at the start
view.py       datasets as people and clients see them
"""
