"""The `actsafe` command: main.py chooses, one file per command does the work."""
