"""The state of one table and the operations that change it; each ends in one swap of the metadata pointer."""
