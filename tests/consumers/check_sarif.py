"""Holds SARIF logs against the schema of their format:  check_sarif.py SCHEMA.json LOG.sarif…"""

import json
import pathlib
import sys

from jsonschema import Draft7Validator

schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
# As it was published first, two of its patterns have a bracket too many.
for of in ("run", "toolComponent"):
    schema["definitions"][of]["properties"]["language"]["pattern"] = "^[a-zA-Z]{2}(-[a-zA-Z]{2})?$"
Draft7Validator.check_schema(schema)
checker = Draft7Validator.FORMAT_CHECKER
# They are checked only where the packages for them are installed.
assert {"date-time", "uri", "uri-reference"} <= checker.checkers.keys()
wrong = 0
for path in sys.argv[2:]:
    log = json.loads(pathlib.Path(path).read_text())
    for error in Draft7Validator(schema, format_checker=checker).iter_errors(log):
        print(f"{path}: {error.json_path}: {error.message}"[:500])
        wrong += 1
sys.exit(wrong > 0)
