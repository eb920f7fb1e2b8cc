"""Files, memory, cluster and compiled kernels: services that depend on no other package."""
