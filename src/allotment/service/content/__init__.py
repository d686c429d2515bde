"""Files by their content: what code that jobs take along and managed datasets have in common.

manifest.py   a list of files with their digests; pure
shelf.py      the files of one owner, each kept once, and what of the disk they take
receiving.py  files as they come, cut anywhere
"""
