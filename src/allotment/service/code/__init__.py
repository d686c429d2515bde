"""Code that jobs take along: sent once, kept by content for its user, laid out for tasks.

manifest.py   what a bundle is: a list of files with their digests; pure
store.py      where bundles and files lie, each user's apart
receiving.py  files as they come, cut anywhere
layout.py     a bundle as a folder of its user's
code.py       the use cases
"""
