"""Live views in a notebook: of slices, events, a job and an elastic training run; and a panel of buttons.

An output always holds HTML and text, and is updated in place (Jupyter's display ids) while a session lives. So every
program that shows notebooks can show the saved view, even if the kernel was killed. JupyterLab and nbconvert would
prefer a widget to that HTML, and without its kernel a widget is an error or empty.
"""
