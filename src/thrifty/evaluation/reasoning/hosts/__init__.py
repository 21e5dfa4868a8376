"""Where other libraries take the problems and the scores: Inspect, lm-evaluation-harness, TRL, data sets."""
