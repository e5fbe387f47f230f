"""What the driver gives a write job: options of the table and of the job, and paths of output files."""
