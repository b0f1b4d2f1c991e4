"""The record behind `report --json`: the only place where numbers for the page are made."""
