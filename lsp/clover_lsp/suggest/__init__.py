"""From a place in a document to a text worth showing. Pure functions, no protocol."""
