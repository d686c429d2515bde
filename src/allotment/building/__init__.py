"""Builds and pushes an image inside a job: what `allot image build` and `push` run there.

`python -I -m allotment.building build --tag NAME FOLDER` is an ordinary command of an ordinary
job: it has its user's rights and its job's limits, and needs nothing of the service. buildah
does the work, in a user namespace in which the user is root (docs/adr/0043).
"""
