"""The live shell: real commands and reports in, durable events out, effects on a backend."""
