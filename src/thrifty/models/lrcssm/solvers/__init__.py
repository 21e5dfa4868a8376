"""Solving a recurrence for all steps at once: Newton, damped Newton, Jacobi, in order; and its gradient."""
