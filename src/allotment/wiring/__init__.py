"""The composition root: the only place that names concrete adapters.

`service` builds the live world, `sim` simulated ones. Nothing is built at import time.
"""
