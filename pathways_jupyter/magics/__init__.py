"""IPython magics: parse the line, call the layer below, show the result."""
