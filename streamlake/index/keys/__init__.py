"""Keys as bytes: encoding, hashing, the partitioners of message producers, sequence values."""
