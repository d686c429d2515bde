"""Benchmarks: one module a subject, each with `main() -> list[Figure]`."""
