"""Pictures in a notebook that follow what they show: the slice map and the timeline of events.

What an output holds is always HTML and text, drawn again in place (Jupyter's display ids) while a session lives. So the
picture that is saved with the notebook is the picture, in every program that shows notebooks, also when the kernel was
killed and nothing could replace it at the end. A widget would be shown in its stead by JupyterLab and nbconvert, and is
an error or nothing at all without its kernel.
"""
