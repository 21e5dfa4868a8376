"""What a model's output cost, beside what was needed."""
