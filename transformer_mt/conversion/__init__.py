"""Conversion of models and vocabularies to the formats of other libraries."""
