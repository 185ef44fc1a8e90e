"""Runs a notebook of the cells in a JSON file by a real kernel, and prints what each wrote as JSON.

    notebook.py KERNEL CELLS.json
"""

import json
import sys

import nbformat
from nbclient import NotebookClient

with open(sys.argv[2], encoding="utf-8") as file:
    cells = json.load(file)
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
# A machine that is busy takes longer than any cell.
NotebookClient(book, timeout=600, startup_timeout=600, kernel_name=sys.argv[1]).execute()
print(json.dumps(["".join(o.get("text", "") for o in cell.outputs) for cell in book.cells]))
