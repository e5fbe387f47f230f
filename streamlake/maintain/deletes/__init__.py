"""Conversion of deletes: equality deletes and scattered position deletes become one delete per data file."""
