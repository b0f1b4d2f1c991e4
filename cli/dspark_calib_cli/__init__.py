"""The command line: one module a command, each parses, loads, makes one library call and prints."""

from dspark_calib_cli.app import main

__all__ = ["main"]
