"""Device memory taken away from a process by the CUDA driver, and given back."""
