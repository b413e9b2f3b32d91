"""What holds the layers apart."""
