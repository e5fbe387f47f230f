"""The state of one table and the operations that change it.

Each operation ends in one swap of the metadata pointer.
"""
