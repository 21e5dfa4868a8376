"""Prefix scans: the affine recurrence, the associative tree, the Kalman filter, and kernels for CPU and GPU."""
