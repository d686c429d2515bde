"""The simulator: the engine of the service, driven by a trace instead of a cluster."""
