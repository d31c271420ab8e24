"""Policies and how they play episodes: scripted, bounded and concurrent; trace files and summaries.

Does not know losses. Import its modules by name.
"""
