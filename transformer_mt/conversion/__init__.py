"""Conversion of models and vocabularies from and to the formats of other libraries."""
