"""`streamlake replay-rejects`: writes rejected records into the table once they can be decoded."""
