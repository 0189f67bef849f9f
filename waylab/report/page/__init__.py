"""The page of a run: its sections, drawings and texts, in one HTML file."""
