"""Decisions: records with an outcome and its reasons."""
