"""What a reader sees of a model: drawings and terminal tables, from plain dicts. Computes nothing."""
