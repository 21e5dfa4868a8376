"""Rival networks and simple forecasts, vectorised as the model is: clean-room, on the same windows."""
