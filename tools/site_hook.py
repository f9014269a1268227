"""What MkDocs does for the site beyond mkdocs.yml; see tools/site."""
import html
import json
import logging
import os
import posixpath
import re
import subprocess
import sys
from urllib.parse import unquote
from xml.etree.ElementTree import Element, SubElement

import pygments
import pygments.formatters
import pygments.lexers
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))
import console_blocks  # noqa: E402

THEMES = ["/usr/share/mkdocs/themes/material"]
PATH = re.compile(r"(src|tests|tools|include|examples|experiments|bench)/[\w./-]+")
LOG = logging.getLogger("mkdocs.site")

page_file = files_now = config_now = None


class TreeFile(File):
    """A file or folder of the tree that is no page: becomes a page with its text, or with its names."""

    def __init__(self, path, config):
        super().__init__(f"tree/{path}.html", ROOT, config["site_dir"], False)
        self.path = path

    def copy_file(self, dirty=False):
        source = os.path.join(ROOT, self.path)
        if os.path.isdir(source):
            names = sorted(n + ("/" if os.path.isdir(os.path.join(source, n)) else "") for n in os.listdir(source))
            body = "<pre>" + html.escape("\n".join(names)) + "</pre>"
        else:
            with open(source, encoding="utf-8", errors="replace") as file:
                text = file.read()
            try:
                lexer = pygments.lexers.get_lexer_for_filename(self.path)
            except pygments.util.ClassNotFound:
                lexer = pygments.lexers.TextLexer()
            body = pygments.highlight(text, lexer, pygments.formatters.HtmlFormatter(
                linenos="inline", lineanchors="L", anchorlinenos=True, cssclass="highlight"))
            body = re.sub(r'(id|name|href)="(#?)L-(\d+)"', r'\1="\2L\3"', body)
        os.makedirs(os.path.dirname(self.abs_dest_path), exist_ok=True)
        style = posixpath.relpath("assets/site.css", posixpath.dirname(self.url))
        with open(self.abs_dest_path, "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.path)}</title>'
                       f'<meta name="viewport" content="width=device-width,initial-scale=1">'
                       f'<link rel="stylesheet" href="{style}"></head><body class="source"><h1>{html.escape(self.path)}</h1>'
                       f"{body}</body></html>\n")


def place(path):
    """Returns the name in MkDocs' collection of a file of the tree; adds the file where the site has not got it."""
    if path.startswith("docs/"):
        inside = path[len("docs/"):]
        if inside in files_now or inside.endswith(".md"):
            return inside
    if path.endswith(".md"):
        return "tree/" + path
    name = f"tree/{path}.html"
    if name not in files_now and os.path.exists(os.path.join(ROOT, path)):
        files_now.append(TreeFile(path, config_now))
    return name


def is_text(path):
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return b"\0" not in file.read(4096)


class Links(Treeprocessor):
    """Links to files of the tree become links to their pages here, and so do names of files in backquotes."""

    def run(self, root):
        here = page_file.src_uri
        on_disk = here[len("tree/"):] if here.startswith("tree/") else "docs/" + here
        for element in root.iter():
            key = {"a": "href", "img": "src"}.get(element.tag)
            url = element.get(key) if key else None
            if not url or re.match(r"[a-z]+:|#|/|\\", url):
                continue
            path, mark, anchor = url.partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(on_disk), unquote(path)))
            if target.startswith(".."):
                continue
            found = place(target)
            element.set(key, posixpath.relpath(found, posixpath.dirname(here) or ".") + mark + anchor)
        for code in list(root.iter("code")):  # words stay on one line: `--steps` does not break after `--`
            text = code.text or ""
            if len(text) <= 30:
                code.set("class", "short")
            elif " " in text and len(code) == 0:
                code.text = ""
                for word in text.split(" "):
                    span = SubElement(code, "span", {"class": "short"} if len(word) <= 30 else {})
                    span.text, span.tail = AtomicString(word), " "
                code[-1].tail = None
        for cell in root.iter("td"):
            length = len("".join(cell.itertext()))
            if length <= 18 or length > 40:
                cell.set("class", "short" if length <= 18 else "long")
        for parent in list(root.iter()):
            for at, child in enumerate(parent if parent.tag != "a" else ()):
                if child.tag == "img":  # a figure is a link to itself, for small screens
                    wrap(parent, at, child, {"class": "figure", "href": child.get("src")})
                elif child.tag == "code" and PATH.fullmatch(child.text or "") and is_text(os.path.join(ROOT, child.text)):
                    wrap(parent, at, child, {"href": posixpath.relpath(place(child.text), posixpath.dirname(here) or ".")})


def wrap(parent, at, child, attributes):
    """Puts a link around a child of an element."""
    link = Element("a", attributes)
    link.tail, child.tail = child.tail, None
    link.append(child)
    parent[at] = link


class LinksExtension(Extension):
    def extendMarkdown(self, md):
        md.treeprocessors.register(Links(md), "tree_links", 1)  # before MkDocs' own, after links are elements


def slug(text, separator):
    """A heading's anchor, as forges make it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def console(source, language, css_class, options, md, **more):
    """A ```console block: prompts and output are marked, so that assets/site.css keeps them out of what is copied."""
    bash = pygments.lexers.get_lexer_by_name("bash")
    plain = pygments.formatters.HtmlFormatter(nowrap=True)
    out = []
    for _, host, text in console_blocks.items(source.split("\n")):
        if host is None:
            out.append(f'<span class="go">{html.escape(text)}\n</span>')
        else:
            out.append(f'<span class="gp">{host}$ </span>' + pygments.highlight(text, bash, plain))
    return f'<div class="console highlight"><pre><code>{"".join(out)}</code></pre></div>'


def on_config(config):
    global config_now
    config_now = config
    theme = next((t for t in THEMES if os.path.isfile(t + "/base.html")), None)
    if not theme:
        raise SystemExit("no theme: apt-get install mkdocs-material")
    config["theme"].dirs.insert(1, theme)
    config["markdown_extensions"].append(LinksExtension())
    config["mdx_configs"]["toc"]["slugify"] = slug
    config["mdx_configs"]["pymdownx.superfences"] = {
        "custom_fences": [{"name": "console", "class": "console", "format": console}]}
    return config


def tree_pages():
    """Pages outside docs/."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                            capture_output=True, text=True)
    return sorted({p for p in listed.stdout.split() if not p.startswith("docs/") and os.path.exists(os.path.join(ROOT, p))})


def on_files(files, config):
    global files_now
    files_now = files
    for path in tree_pages():
        file = File("tree/" + path, ROOT, config["site_dir"], False)
        file.abs_src_path = os.path.join(ROOT, path)
        files.append(file)
    return files


def on_page_markdown(markdown, page, **more):
    global page_file
    page_file = page.file
    return markdown


def local_links(path):
    """Returns (links, anchors, remote resources) of a built page."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"<script>.*?</script>", "", file.read(), flags=re.S)
    resources = [m.group(2) for m in re.finditer(r'<(?:script|img|link|iframe|source)\b[^>]*?\b(src|href|srcset)="([^"]*)"', text)]
    links = [html.unescape(m.group(1)) for m in re.finditer(r'<a\b[^>]*?\bhref="([^"]*)"', text)] + resources
    anchors = {html.unescape(m.group(1)) for m in re.finditer(r'\b(?:id|name)="([^"]*)"', text)}
    remote = [r for r in resources if re.match("(https?:)?//", r)]
    return links, anchors, remote


def check_site(folder):
    """Warns of links in built pages that lead nowhere, and of what a page would load from the network."""
    pages = {}
    for at, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(at, name)
                pages[path] = local_links(path)
            elif name.endswith(".css"):
                with open(os.path.join(at, name), encoding="utf-8") as file:
                    for found in re.findall(r"url\(\s*[\"']?((?:https?:)?//[^)]*)|@import\s+[^;]*//[^;]*", file.read()):
                        LOG.warning(f"{name} loads {found}")
    for path, (links, _, remote) in sorted(pages.items()):
        here = os.path.relpath(path, folder)
        for found in remote:
            LOG.warning(f"{here} loads {found}")
        for link in sorted(set(links)):
            if re.match(r"[a-z]+:|//", link):
                continue
            target, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(path), unquote(target))) if target else path
            if os.path.isdir(target):
                target = os.path.join(target, "index.html")
            if not os.path.exists(target):
                LOG.warning(f"{here} links to {link}, which the site does not have")
            elif anchor and target in pages and unquote(anchor) not in pages[target][1]:
                LOG.warning(f"{here} links to {link}: no such heading")


def on_post_build(config):
    """The index of the search with tags, and as a script for file://."""
    folder = os.path.join(config["site_dir"], "search")
    with open(os.path.join(folder, "search_index.json"), encoding="utf-8") as file:
        index = json.load(file)
    for entry in index["docs"]:
        method = re.fullmatch(r"methods/(?!index)(\w+)\.html", entry["location"])
        if method:  # a method's page is the first that its name finds
            entry["tags"] = [method.group(1)]
    index = json.dumps(index)
    with open(os.path.join(folder, "search_index.json"), "w", encoding="utf-8") as file:
        file.write(index)
    with open(os.path.join(folder, "search_index.js"), "w", encoding="utf-8") as file:
        file.write(f"search_index_ready({index});\n")
    check_site(config["site_dir"])
