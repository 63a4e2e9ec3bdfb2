"""The buildings that ship with campus: each package is one plugin, loaded by its entry point."""
