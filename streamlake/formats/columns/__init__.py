"""Column handling shared by all file formats: metrics, projection, names, file options, batches."""
