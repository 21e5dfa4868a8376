"""What a gate on quality calls equal, in nats."""

#: Twice the standard deviation, between seeds of the tuning split, of (our loss - RDS+'s); see ``tuning.tune``.
MARGIN = 0.02
