"""Interoperability: name tables to import weights of other libraries, and CTranslate2 as an engine."""
