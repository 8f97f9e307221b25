"""The flags: a row for each, the table that scripts share, and their values.

A flag's row says its default, help, check, and which runs use it. May import
`data`; checks of files and devices that need more are in `scripts`.
"""
