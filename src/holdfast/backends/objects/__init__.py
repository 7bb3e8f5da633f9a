"""Stores that keep objects under names: a folder, S3, Google Cloud Storage."""
