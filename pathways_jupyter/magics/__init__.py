"""IPython magics: parse the line, call the room below, show the result."""
