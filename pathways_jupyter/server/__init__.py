"""The Jupyter server extension behind the sidebar."""
