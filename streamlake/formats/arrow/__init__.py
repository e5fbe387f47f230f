"""Arrow schemas and arrays of Iceberg types, with exact conversions that Arrow's own casts do not offer."""
