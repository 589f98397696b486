"""Documents: pairs from every file format, and TMX, XLIFF and PO files translated in place."""
