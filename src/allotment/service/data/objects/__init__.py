"""Datasets in object stores: looked at when a job is submitted, fetched before it starts.

address.py   where a store may be, and connections to it
keys.py      a user's keys, read from the user's own file with the user's rights
signing.py   a request as its user signs it; pure
listing.py   what a store says it has, as files; pure
bucket.py    asking a store
cache.py     what was fetched, and what goes when there is no room
objects.py   versions of what is in a store, and files for jobs that start
reading.py   files for users, straight from a store
putting.py   versions that users put into a store
trouble.py   what can go wrong, and whose matter it is
"""
