"""The programs of systems that specifications describe themselves: their settings, and placeholders in their texts."""
