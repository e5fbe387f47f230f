"""Writers of delete files: equality deletes, position deletes, deletion vectors."""
