"""What at least two methods need and no kept library gives."""
