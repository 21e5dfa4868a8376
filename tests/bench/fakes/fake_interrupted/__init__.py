"""A full run that is interrupted the first time, after its second seed."""
