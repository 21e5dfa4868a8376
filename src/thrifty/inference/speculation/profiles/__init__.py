"""Data: configs of public models, and what devices can do at best."""
