"""Hooks of mkdocs for the site of the documentation, which ``make docs`` builds.

The README is the first page, and further pages come from the root of the project. A link to a file
that has no page becomes its name. A page that would ask another host for anything ends the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files of the project's root that have a page -> the page."""
_LINK: Final = re.compile(r"(?<!!)\[([^\]\n]+)\]\(((?![a-z]+:|#)[^)\s]+)\)")
_REMOTE: Final = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
)
_HOST: Final = re.compile(r"https://(?:unpkg\.com|fonts\.\w+\.com)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from the project's root."""
    for source, page in _PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:  # noqa: ANN401 - mkdocs' own
    """Sets links to the pages of the site.

    Raises:
        PluginError: A link leads to no file.
    """
    name = page.file.src_uri
    folder = _ROOT if name in _PAGES.values() else _ROOT / "docs"

    def page_of(link: re.Match[str]) -> str:
        path, mark, anchor = link[2].partition("#")
        target = (folder / path).resolve()
        if not target.exists():
            raise PluginError(f"{name}: {link[2]} leads to no file")
        place = target.relative_to(_ROOT).as_posix()
        if place in _PAGES:
            return f"[{link[1]}]({_PAGES[place]}{mark}{anchor})"
        if target.parent == _ROOT / "docs":
            return f"[{link[1]}]({target.name}{mark}{anchor})"
        shown = link[1].strip("`")
        return f"`{place}`" if shown in {place, target.name} else f"{link[1]} (`{place}`)"

    pictures = re.sub(r"(!\[[^\]\n]*\]\()docs/", r"\1", markdown) if folder == _ROOT else markdown
    return _LINK.sub(page_of, pictures)


def on_post_page(output: str, page: Page, **_: Any) -> str:  # noqa: ANN401 - mkdocs' own
    """Looks for what a browser would fetch from another host.

    Raises:
        PluginError: There is something.
    """
    if found := _REMOTE.search(output):
        raise PluginError(f"{page.file.src_uri} asks another host: {found[0]}")
    return output


def on_post_build(config: MkDocsConfig) -> None:
    """Takes addresses of other hosts out of the theme's scripts and styles.

    The theme fetches a shim for pages that are read from a folder, and what draws diagrams.
    """
    for path in Path(config.site_dir, "assets").rglob("*"):
        if path.suffix in {".js", ".css"}:
            text = path.read_text(encoding="utf-8")
            if _HOST.search(text):
                path.write_text(_HOST.sub("", text), encoding="utf-8")
