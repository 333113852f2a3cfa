"""Pages for people, drawn on the server, with a shell for pages of libraries."""
