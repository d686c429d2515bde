"""The sharing-anomaly experiment: what a share is worth beside others (HiveD, OSDI 2020)."""
