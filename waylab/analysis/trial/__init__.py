"""The numbers and gates of one trial, from the files in its folder."""
