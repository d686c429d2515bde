"""Jobs written for a Kubernetes operator, read without it: PyTorchJob, TrainJob, JobSet, Job …

A kind is a file, which says what becomes of each of its fields (`fields.py`): it is read, told
to be without use here, or refused. A field that is in no table is refused, too. What all kinds
share, the pod template, is in `pod.py`; a file becomes the native form, and is read as that.
"""
