"""Accelerators in images, as the Container Device Interface (CDI) describes them."""
