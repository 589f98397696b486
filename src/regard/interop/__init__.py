"""Interoperability with other libraries: CTranslate2 as an engine."""
