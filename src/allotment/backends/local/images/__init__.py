"""Images on this machine: found in registries, unpacked layer by layer, kept for the next.

A task's supervisor mounts them (runner/image_root.py). Only the service writes here.
"""
