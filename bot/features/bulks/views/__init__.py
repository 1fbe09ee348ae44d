"""What people see of a bulk."""
