"""Sphinx's configuration for `make docs`, with warnings as errors."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402

project = "pathways_jupyter"
author = "The pathways_jupyter authors"
version = release = installed_version("pathways_jupyter")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
# Options such as --wait keep their two hyphens.
smartquotes = False

html_theme = "furo"
html_title = f"pathways_jupyter {version}"
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
# That of the theme underlines what is imported, like links.
pygments_dark_style = "github-dark"

myst_enable_extensions = ["colon_fence", "attrs_block"]
myst_heading_anchors = 4
# The notebooks are rendered with the outputs that they have; `make docs` runs them first.
nb_execution_mode = "off"
# Lines that were printed one by one are one output.
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_include_init_with_doc = False
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Any) -> None:
    """Write the generated pages before Sphinx looks for pages."""
    generate.write(HERE)
    app.connect("source-read", _link_to_run_notebooks)


def _link_to_run_notebooks(app: object, page: str, source: list[str]) -> None:
    """Replace links to notebooks of a clone, which have no outputs, by links to those that were run for the site."""
    source[0] = source[0].replace("](../examples/notebooks/", "](notebooks/")
