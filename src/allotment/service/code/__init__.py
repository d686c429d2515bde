"""Code that jobs take along: sent once, kept by content for its user, laid out for tasks.

store.py      where bundles and files lie, each user's apart
layout.py     a bundle as a folder of its user's
code.py       the use cases
"""
