"""The commands that fit models to runs and predict with them."""
