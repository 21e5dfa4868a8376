"""Any number of changes, and cuts removed as well, by the dynamic programme over boxes."""
