"""Arrays, documents and files: everything untrusted is checked here, once."""
