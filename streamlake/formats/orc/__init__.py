"""ORC data files: writer, reader, schemas, timestamps."""
