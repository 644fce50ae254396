"""index.html at the top of the site, which leads to the first page."""

from pathlib import Path

PAGE = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={first}">
<title>{title}</title>
<a href="{first}">{title}</a>
"""


def _write(app, error):
    if error is None and app.builder.format == "html":
        page = PAGE.format(first=f"{app.config.root_doc}.html", title=app.config.html_title)
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app):
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
