"""Runs tasks as pods of a Kubernetes cluster, one for each, on the nodes that were chosen.

What is a pod, and what it means, is pure (request, status, discover, usage); the rest is IO.
"""
