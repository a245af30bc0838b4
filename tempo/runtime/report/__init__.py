"""`run.report(path)`: one page for people, of all that the compiler decided, by the user's lines.

`contents` is what the page knows, as plain data. `collect` finds it out: `graphs`, `schedule`, `keeping`, `lifetimes`
and `code` the parts, `sources` the user's lines that they are of. `page` writes it into `page.html`; its script draws.
"""
