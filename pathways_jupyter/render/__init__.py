"""Pictures of typed values, as text and as HTML, for whichever face shows them: pure functions, nothing displayed."""
